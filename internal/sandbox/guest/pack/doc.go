// Package pack turns files into tar streams and back, for copies between a
// host and a sandbox. Both ends use it, and each distrusts the other.
//
// Pack follows the path it is given and no symbolic link below it. Unpack
// writes through an os.Root only: whatever a stream contains, nothing outside
// of the root is created, changed or removed. It merges into folders that
// exist and replaces files by rename, so that nobody sees half of one.
// Sockets, devices and pipes are not copied: Pack skips, counts and names
// them, and refuses to be asked for one alone; Unpack refuses them. Files that
// do not say how large they are, as in /proc, are read to their end, and blocks
// of zeros are written as holes.
//
// Calls keep no state and may run at once, also on the same root.
package pack
