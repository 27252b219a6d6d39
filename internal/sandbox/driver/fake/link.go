package fake

import (
	"context"
	"io"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/yamux"

	"brood/internal/base/errs"
	"brood/internal/sandbox"
	"brood/internal/sandbox/guest/proto"
)

// open makes a handle and serves its other end.
func (m *machine) open() (sandbox.Channel, error) {
	host, guest := net.Pipe()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return nil, errs.New(errs.NotFound, "the sandbox has ended")
	}
	m.handles[guest] = true
	m.group.Go("channel", func(ctx context.Context) error {
		m.serve(ctx, guest)
		return nil
	})
	return host, nil
}

// serve has one session after the other on a handle.
func (m *machine) serve(ctx context.Context, conn net.Conn) {
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.handles, conn)
		_ = conn.Close() // a pipe's never fails
	}()
	l := &link{conn: conn, magic: proto.NewMatcher(m.magic), buf: make([]byte, 32<<10)}
	for l.next() == nil {
		if !slices.ContainsFunc(l.nonce, func(b byte) bool { return b != 0 }) {
			// A host that leaves says so with a session of nobody. It must not
			// take the place of the next host's, which may be here already.
			l.begun = false
			continue
		}
		epoch := m.begin(conn)
		if _, err := conn.Write(append(append([]byte{}, m.magic...), l.nonce...)); err != nil {
			return
		}
		l.fresh()
		m.session(ctx, l, epoch)
	}
}

// begin makes a handle's new session the only one.
func (m *machine) begin(conn net.Conn) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	for other := range m.handles {
		if other != conn {
			_ = other.Close() // a pipe's never fails
		}
	}
	m.epoch++
	return m.epoch
}

func (m *machine) session(ctx context.Context, l *link, epoch uint64) {
	config := yamux.DefaultConfig()
	config.EnableKeepAlive = false
	config.StreamOpenTimeout, config.StreamCloseTimeout = 0, 0
	config.ConnectionWriteTimeout = 10000 * time.Hour
	config.LogOutput = io.Discard
	mux, err := yamux.Server(l, config)
	if err != nil {
		return // only a wrong config is refused, and this is none
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		st, err := mux.AcceptStream()
		if err != nil {
			break
		}
		m.group.Go("request", func(context.Context) error {
			m.request(ctx, st, epoch)
			return nil
		})
	}
	_ = mux.Close() // closed already; this waits for its goroutines
}

// link is a handle's guest end: bytes of a session, cut out of what the host
// writes. One goroutine reads.
type link struct {
	conn    net.Conn
	magic   *proto.Matcher
	unframe proto.Unframer
	buf     []byte
	pending []byte
	nonce   []byte
	begun   bool // the magic was seen: a session ends, another begins
	rest    []byte
	over    chan struct{} // closed with the session
}

// fresh begins a session.
func (l *link) fresh() {
	l.unframe.Reset()
	l.begun, l.rest, l.over = false, nil, make(chan struct{})
}

func (l *link) fill() error {
	if len(l.pending) > 0 {
		return nil
	}
	n, err := l.conn.Read(l.buf)
	l.pending = l.buf[:n]
	if n > 0 {
		return nil
	}
	return err
}

// next waits for a magic and takes the nonce behind it.
func (l *link) next() error {
	for !l.begun {
		if err := l.fill(); err != nil {
			return err
		}
		end, found := l.magic.Feed(l.pending)
		l.pending, l.begun = l.pending[end:], found
	}
	l.nonce = l.nonce[:0]
	for len(l.nonce) < proto.NonceSize {
		if err := l.fill(); err != nil {
			return err
		}
		n := min(len(l.pending), proto.NonceSize-len(l.nonce))
		end, again := l.magic.Feed(l.pending[:n])
		if again {
			l.nonce, n = l.nonce[:0], end
		} else {
			l.nonce = append(l.nonce, l.pending[:n]...)
		}
		l.pending = l.pending[n:]
	}
	return nil
}

// Read returns the session's bytes; its end is a new session or none.
func (l *link) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.begun {
			return 0, io.EOF
		}
		if err := l.fill(); err != nil {
			return 0, io.EOF
		}
		taken, payload := l.unframe.Feed(l.pending)
		if end, found := l.magic.Feed(l.pending[:taken]); found {
			l.pending, l.begun = l.pending[end:], true
			continue
		}
		l.pending, l.rest = l.pending[taken:], payload
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// Write sends bytes to the host. A failure is told only when the session is
// over: the multiplexer would spin until its reader knows too.
func (l *link) Write(p []byte) (int, error) {
	n, err := l.conn.Write(p)
	if err != nil {
		<-l.over
	}
	return n, err
}

// Close ends the session; the handle stays.
func (l *link) Close() error {
	select {
	case <-l.over:
	default:
		close(l.over)
	}
	return nil
}
