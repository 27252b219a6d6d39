package cache

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// beneath says whether something is at name, the way to which never leaves dir:
// in one system call, where os.Root needs two for each folder on the way. ok is
// false when the system does not say.
func beneath(dir *os.File, name string) (there, ok bool) {
	fd, err := unix.Openat2(int(dir.Fd()), name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case err == nil:
		_ = unix.Close(fd) // nothing was done with it
		return true, true
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return false, true
	}
	return false, false
}
