// Package content reads and writes what is in files for copies between
// machines and sandboxes: pseudo files that do not know their size, holes of
// sparse files, times of symlinks.
//
// It follows no name: callers open the files, and say through which os.Root a
// link is meant. A Holes belongs to one goroutine; everything else is safe for
// concurrent use.
package content
