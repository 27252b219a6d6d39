//go:build linux

package launch

import (
	"context"
	"errors"

	"brood/internal/base/errs"

	"golang.org/x/sys/unix"
)

// process is a handle of a process that no later one with its number is taken
// for.
type process struct {
	pid int
	fd  int
}

// ended reports whether the process is gone.
func (p *process) ended() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, 0)
	return err != nil || n > 0
}

// note keeps a handle of the holder that a connection was just made to, so
// that it can be ended when its files are gone. Without one, on a kernel that
// gives none, Kill says so.
func (c *Client) note(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.holder != nil && c.holder.pid == pid && !c.holder.ended() {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	c.dropHolder()
	c.holder = &process{pid: pid, fd: fd}
}

// dropHolder closes the handle; c.mu is held.
func (c *Client) dropHolder() {
	if c.holder != nil {
		_ = unix.Close(c.holder.fd)
		c.holder = nil
	}
}

// Kill ends the holder, and with it every sandbox, whether its directory is
// still there or not. It waits until they are gone, tidies nothing up, and
// closes the client.
func (c *Client) Kill(ctx context.Context) error {
	c.mu.Lock()
	holder := c.holder
	c.holder = nil
	c.mu.Unlock()
	_ = c.Close()
	if holder == nil {
		return errs.New(errs.Unavailable, "the holder in %s is not known: end its processes by hand", c.dir)
	}
	defer func() { _ = unix.Close(holder.fd) }()
	if err := unix.PidfdSendSignal(holder.fd, unix.SIGKILL, nil, 0); errors.Is(err, unix.ESRCH) {
		return nil
	} else if err != nil {
		return errs.New(errs.Internal, "end the holder in %s: %w", c.dir, err)
	}
	return waitGone(ctx, holder.fd)
}
