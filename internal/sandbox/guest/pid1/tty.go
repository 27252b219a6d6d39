//go:build linux

package pid1

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// terminal opens a new terminal. Its server side is non-blocking; the
// program's side is a plain descriptor for the child.
func terminal(cols, rows uint16, owner *account) (master *os.File, slave int, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("open a terminal: %w", err)
	}
	slave, err = terminalSlave(fd)
	if err != nil {
		return nil, -1, errors.Join(fmt.Errorf("open a terminal: %w", err), unix.Close(fd))
	}
	if cols > 0 && rows > 0 {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: cols, Row: rows})
	}
	if err == nil && owner.cred != nil {
		// So that programs may open /dev/tty by its name again. Where the
		// file system does not know owners it works without.
		_ = unix.Fchown(slave, int(owner.cred.Uid), -1)
	}
	if err != nil {
		return nil, -1, errors.Join(fmt.Errorf("set up a terminal: %w", err), unix.Close(fd), unix.Close(slave))
	}
	return os.NewFile(uintptr(fd), "/dev/ptmx"), slave, nil
}

func terminalSlave(master int) (int, error) {
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return -1, err
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, err
	}
	return unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
}

// foreground returns a terminal's foreground group, 0 when there is none or
// the kernel does not tell it to who has another terminal (gVisor).
func foreground(master *os.File) int {
	group := 0
	raw, err := master.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if n, err := unix.IoctlGetInt(int(fd), unix.TIOCGPGRP); err == nil && n > 0 {
			group = n
		}
	})
	return group
}

func resize(master *os.File, cols, rows uint16) error {
	raw, err := master.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = raw.Control(func(fd uintptr) {
		result = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: cols, Row: rows})
	})
	return errors.Join(err, result)
}
