package guest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"brood/internal/sandbox/guest/proto"
)

// partingLimit bounds the last write of a client, which only tells the guest
// early what the next client would.
const partingLimit = 100 * time.Millisecond

// OpenChannel makes a socket's file a channel whose Close ends its reads. It
// takes over the file, also when it fails.
func OpenChannel(f *os.File) (io.ReadWriteCloser, error) {
	conn, err := net.FileConn(f)
	err = errors.Join(err, f.Close())
	if err != nil {
		if conn != nil {
			err = errors.Join(err, conn.Close())
		}
		return nil, fmt.Errorf("open the sandbox's channel: %w", err)
	}
	return conn, nil
}

// channel is the host's end of a session: what it writes goes out in records.
type channel struct {
	conn  io.ReadWriteCloser
	magic []byte
	rest  []byte // read behind the guest's answer

	mu     sync.Mutex // serialises writes
	held   []byte     // a header whose data comes next
	buf    []byte
	closed sync.Once
}

// resync begins a session: it sends the pattern and drops what the guest had
// still to say to somebody else.
func resync(conn io.ReadWriteCloser, magic, nonce []byte) (*channel, error) {
	pattern := append(append(make([]byte, 0, len(magic)+len(nonce)), magic...), nonce...)
	if _, err := conn.Write(pattern); err != nil {
		return nil, err
	}
	m := proto.NewMatcher(pattern)
	buf := make([]byte, 32<<10)
	for {
		n, err := conn.Read(buf)
		if end, found := m.Feed(buf[:n]); found {
			return &channel{conn: conn, magic: magic, rest: buf[end:n]}, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// Read returns the guest's bytes.
func (c *channel) Read(p []byte) (int, error) {
	if len(c.rest) > 0 {
		n := copy(p, c.rest)
		c.rest = c.rest[n:]
		return n, nil
	}
	return c.conn.Read(p)
}

// Write sends p in records.
func (c *channel) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// What follows a held header is its data, whatever it looks like.
	first := len(c.held) == 0
	c.held = append(c.held, p...)
	if first && proto.Announces(p) {
		return len(p), nil
	}
	c.buf = proto.AppendRecords(c.buf[:0], c.held)
	c.held = c.held[:0]
	if _, err := c.conn.Write(c.buf); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close ends the session. The guest is told by the beginning of a new one
// that nobody will use, so that it stops sending; where that is not possible
// it finds out when the next client comes.
func (c *channel) Close() (err error) {
	c.closed.Do(func() {
		if d, ok := c.conn.(interface{ SetWriteDeadline(time.Time) error }); ok {
			if d.SetWriteDeadline(time.Now().Add(partingLimit)) == nil {
				c.mu.Lock()
				_, _ = c.conn.Write(append(c.magic[:len(c.magic):len(c.magic)], make([]byte, proto.NonceSize)...))
				c.mu.Unlock()
			}
		}
		err = c.conn.Close()
	})
	return err
}
