package daemon

import (
	"net"

	"golang.org/x/sys/unix"

	"brood/internal/base/errs"
)

// peerUID is the user at the other end of a Unix socket, as the kernel knows.
func peerUID(c net.Conn) (int, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, errs.New(errs.Internal, "not a Unix socket: %T", c)
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	uid := 0
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if credErr = err; err == nil {
			uid = int(cred.Uid)
		}
	})
	if err == nil {
		err = credErr
	}
	return uid, err
}
