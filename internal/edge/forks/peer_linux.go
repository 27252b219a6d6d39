package forks

import (
	"context"
	"net"

	"golang.org/x/sys/unix"

	"brood/internal/home"
)

// peerOf is the process that listens on a home's socket, by the kernel's word;
// 0 when nobody does, or it is in another container.
func peerOf(ctx context.Context, h *home.Home) int {
	c, err := home.DialSocket(ctx, h.Socket())
	if err != nil {
		return 0
	}
	defer c.Close()
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	err = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	if err != nil {
		return 0
	}
	return pid
}
