// Package image keeps the root filesystems of one machine, under
// $BROOD_HOME/images.
//
// A folder or a tar becomes one EROFS file, named by its SHA-256, with our
// guest program and the mount points of a sandbox inside. "host" is this
// machine's own root by an allow-list: a skeleton folder with copies of a
// listed part of /etc, and the folders of the machine that a driver mounts
// into it. Both are immutable: whatever changes makes another image with
// another digest, which is what a checkpoint pins.
//
// Images are made beside and published by one rename. Names that begin with a
// dot are debris of a killed process; Open removes them. Nothing here mounts
// or runs anything, and no file is copied that not everybody on this machine
// may read. A Store is safe for concurrent use; two imports of one source at
// once build it once. The caller of Open holds the daemon's lock.
package image
