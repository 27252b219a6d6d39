// Package inherit keeps open files from processes that outlive their caller.
//
// Go passes its children only what it is told to; but what this process itself
// was given by its parent (a lock of a script, the pipe of a CI) goes on to every
// child, and is held as long as that lives.
package inherit

import (
	"os"
	"strconv"
	"syscall"
)

// Nothing keeps all that is open now, but the standard streams, from processes
// that are started later, unless it is passed to them on purpose.
func Nothing() error {
	list, err := os.ReadDir("/dev/fd")
	if err != nil {
		return err
	}
	for _, f := range list {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd) // one that was closed meanwhile is no matter
		}
	}
	return nil
}
