package home

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
)

// maxSunPath is what a socket address holds, less the final zero (unix(7):
// 108 on Linux, 104 elsewhere).
const maxSunPath = 103

// shortened calls f with a path of path's socket that fits into an address:
// on Linux a long one is reached through an open folder.
func shortened(path string, f func(string) error) error {
	if len(path) <= maxSunPath {
		return f(path)
	}
	if runtime.GOOS != "linux" {
		return fmt.Errorf("socket path %s is longer than %d characters: use a shorter BROOD_HOME", path, maxSunPath)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	err = f(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
	return errors.Join(err, dir.Close())
}

// ListenSocket listens on the Unix socket at path, however long the path is,
// with mode 0600. A stale socket is replaced: the caller holds the lock.
func ListenSocket(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var l *net.UnixListener
	err := shortened(path, func(short string) error {
		var err error
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false) // the short path is gone by then; the owner removes path
		return os.Chmod(path, 0o600)
	})
	if err != nil {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
		return nil, err
	}
	return l, nil
}

// DialSocket connects to the Unix socket at path, however long the path is.
func DialSocket(ctx context.Context, path string) (net.Conn, error) {
	var c net.Conn
	err := shortened(path, func(short string) error {
		var d net.Dialer
		var err error
		c, err = d.DialContext(ctx, "unix", short)
		return err
	})
	return c, err
}
