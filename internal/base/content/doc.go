// Package content reads and writes what is in files. For copies between
// machines and sandboxes: pseudo files that do not know their size, holes of
// sparse files, times of symlinks, tar streams that are whole; and for the many small files of a workspace:
// reading them in few system calls, and never what is no file.
//
// For copies it follows no name: callers open the files, and say through which
// os.Root a link is meant. A Holes or a Tar belongs to one goroutine; everything
// else is safe for concurrent use.
package content
