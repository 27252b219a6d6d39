//go:build linux

package launch

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// socketPath runs f with a path to the socket in dir that fits a socket
// address, whatever the length of dir: it goes through an open descriptor.
func socketPath(dir string, f func(path string) error) error {
	d, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	fd, err := rawFD(d)
	if err != nil {
		return err
	}
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", fd, SocketName))
}

// Listen makes the launcher's socket in dir, replacing a stale one. Only the
// owner may connect.
func Listen(dir string) (*net.UnixListener, error) {
	var l *net.UnixListener
	err := socketPath(dir, func(path string) error {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
		var err error
		if l, err = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path}); err != nil {
			return err
		}
		// The path is only valid while the directory is open.
		l.SetUnlinkOnClose(false)
		return os.Chmod(path, 0o600)
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s/%s: %w", dir, SocketName, err)
	}
	return l, nil
}

// connect makes one connection and checks that the other side is the same
// user. The directory's mode already says so; the kernel's word is better.
func connect(ctx context.Context, dir string) (*net.UnixConn, *unix.Ucred, error) {
	var conn *net.UnixConn
	err := socketPath(dir, func(path string) error {
		c, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err != nil {
			return err
		}
		conn = c.(*net.UnixConn)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	cred, err := Peer(conn)
	if err == nil && int(cred.Uid) != os.Geteuid() {
		err = fmt.Errorf("socket in %s belongs to uid %d, not to you", dir, cred.Uid)
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return conn, cred, nil
}

// Peer returns who is on the other side of c, as the kernel knows it.
func Peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, credErr
}

// rawFD returns f's descriptor without changing its mode; it is valid while f
// is alive and open.
func rawFD(f *os.File) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	n := -1
	err = raw.Control(func(fd uintptr) { n = int(fd) })
	return n, err
}

func keepAlive(f *os.File) { runtime.KeepAlive(f) }
