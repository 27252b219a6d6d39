package daemon

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"sync"

	"brood/internal/base/errs"
	"brood/internal/home"
)

// socket is the daemon's Unix socket. Its file may be lost while the daemon
// runs: renew makes it anew, and whoever is connected stays so. Connections of
// other users are refused, by the kernel's word; the file's mode does so
// already, and this holds when somebody changes it.
type socket struct {
	path string

	mu     sync.Mutex // guards what follows; never held over I/O
	now    net.Listener
	file   os.FileInfo // what now made at path
	closed bool
}

// listenSocket listens at path. A stale socket there is replaced: the caller
// holds the lock.
func listenSocket(path string) (*socket, error) {
	s := &socket{path: path}
	return s, s.make()
}

// make replaces the listener, and what is at the path.
func (s *socket) make() error {
	l, err := home.ListenSocket(s.path)
	if err != nil {
		return errs.New(errs.FailedPrecondition, "listen on %s: %w", s.path, err)
	}
	file, err := os.Lstat(s.path)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	old := l
	s.mu.Lock()
	if !s.closed {
		old, s.now, s.file = s.now, l, file
	}
	s.mu.Unlock()
	if old != nil {
		_ = old.Close() // nobody can reach it
	}
	return nil
}

// renew makes the socket anew when another file, or none, is in its place. It
// is called by one goroutine. The listener keeps its file's number from being
// given to another.
func (s *socket) renew() (renewed bool, err error) {
	st, err := os.Lstat(s.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	s.mu.Lock()
	own := s.closed || err == nil && os.SameFile(st, s.file)
	s.mu.Unlock()
	if own {
		return false, nil
	}
	return true, s.make()
}

// Accept returns the next connection of a user who may connect.
func (s *socket) Accept() (net.Conn, error) {
	for {
		l := s.listener()
		c, err := l.Accept()
		if err != nil && l == s.listener() {
			return nil, err
		}
		if err != nil {
			continue // it was replaced
		}
		uid, err := peerUID(c)
		if err == nil && (uid == os.Geteuid() || uid == 0) {
			return c, nil
		}
		_ = c.Close()
	}
}

func (s *socket) listener() net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Close ends the listening.
func (s *socket) Close() error {
	s.mu.Lock()
	s.closed = true
	l := s.now
	s.mu.Unlock()
	return l.Close()
}

// Addr is the socket's address.
func (s *socket) Addr() net.Addr { return s.listener().Addr() }
