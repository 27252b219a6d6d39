// Package stamp remembers which content a file had when it was last read, so
// that a file that nobody touched since is not read again.
//
// A Table belongs to one workspace and lives in one file, which is read whole
// and replaced by rename; several processes may do so, and the last one wins:
// losing stamps costs a second read, nothing else. A stamp is believed only
// when size, times, inode and mode are the same and the file had been at rest
// for longer than a clock tick of the file system when it was read. A Table is
// safe for concurrent use.
package stamp
