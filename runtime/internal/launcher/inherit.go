package launcher

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// keepFromChildren closes what is open here, but the standard streams, in every
// process that is started from now on, unless it is passed on purpose. gVisor
// opens its connections to sandboxes as a program may that makes one and ends:
// here each new sandbox would get those to all others, and none could start
// once they have reached the numbers that it keeps for itself.
func keepFromChildren() error {
	err := unix.CloseRange(firstOwn, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC)
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	list, err := os.ReadDir("/proc/self/fd") // Linux before 5.11
	if err != nil {
		return fmt.Errorf("list open files: %w", err)
	}
	for _, f := range list {
		fd, err := strconv.Atoi(f.Name())
		if err != nil || fd < firstOwn {
			continue
		}
		unix.CloseOnExec(fd) // one that was closed meanwhile is no matter
	}
	return nil
}

const firstOwn = 3

// gVisor gives a sandbox's standard streams numbers of their own in the new
// process (boot.startingStdioFD), and does not start where one is taken: by what
// was opened here between keepFromChildren and the start, for one.
const (
	guestFirst = 256
	guestCount = 8 // a few more than it takes
)

// reserve takes these numbers, so that nothing that is opened here has one.
func reserve() error {
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	defer func() { _ = unix.Close(null) }()
	for fd := guestFirst; fd < guestFirst+guestCount; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			return fmt.Errorf("descriptor %d is open already", fd)
		}
		if err := unix.Dup3(null, fd, unix.O_CLOEXEC); err != nil {
			return fmt.Errorf("keep descriptor %d free: %w", fd, err)
		}
	}
	return nil
}
