// Package erofs writes EROFS filesystem images that gVisor can use as a root.
//
// gVisor reads a subset of the format: no extended attributes, no chunk
// indexes, no compression, and regular files only as whole blocks, because it
// maps them straight into the sandbox's processes. The writer keeps to that
// subset (a Linux kernel reads it too), makes real hard links, leaves zero
// blocks of files as holes, and streams: only names and inodes are in memory.
//
// The same tree and contents give the same bytes. The superblock's UUID is
// taken from the content, so that a runtime that compares superblocks also
// notices another image under the same path.
//
// Layout, in blocks of 4 KiB: the superblock's block, file contents in the
// order they were added, directories and symlinks too big for their inode,
// then the inodes in the order of their paths. A Writer is for one goroutine.
package erofs
