//go:build linux

package pid1

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// Channel is a file descriptor read and written with blocking system calls.
// The runtime's poller is not used: after a restore the number means another
// socket than the one it has registered.
type Channel int

// Read blocks until bytes come. The end of the stream is io.EOF, and may be
// followed by more when somebody connects again.
func (c Channel) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(c), p)
		switch {
		case n > 0:
			return n, nil
		case err == nil:
			return 0, io.EOF
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			c.wait(unix.POLLIN)
		default:
			return 0, err
		}
	}
}

// Write writes all of p.
func (c Channel) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n, err := unix.Write(int(c), p[done:])
		switch {
		case n > 0:
			done += n
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			c.wait(unix.POLLOUT)
		case err == nil:
			return done, io.ErrShortWrite
		default:
			return done, err
		}
	}
	return done, nil
}

// wait is for a descriptor that somebody made non-blocking.
func (c Channel) wait(events int16) {
	fds := []unix.PollFd{{Fd: int32(c), Events: events}}
	_, _ = unix.Poll(fds, -1) // whatever it says, the next call finds out
}

// Close closes the descriptor.
func (c Channel) Close() error { return unix.Close(int(c)) }
