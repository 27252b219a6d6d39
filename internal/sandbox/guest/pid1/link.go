//go:build linux

package pid1

import (
	"context"
	"io"
	"sync"
	"time"

	"brood/internal/sandbox/guest/proto"
)

// Backoff while the channel's other end is gone, which happens only when
// nothing at all holds it open.
const (
	backoffMin = 10 * time.Millisecond
	backoffMax = time.Second
)

// link is the byte stream with its resync. Exactly one goroutine reads at a
// time: the current session's receiver, or next when there is no session.
type link struct {
	ch      io.ReadWriteCloser
	magic   []byte
	matcher *proto.Matcher

	// Reader's state.
	buf     []byte
	pending []byte // of buf, not looked at yet
	unframe proto.Unframer
	nonce   []byte
	want    bool // magic was seen; nonce is being collected
	ready   bool // nonce is whole

	write sync.Mutex // serialises writes to ch and guards epoch
	epoch uint64
}

func newLink(ch io.ReadWriteCloser, magic []byte) *link {
	return &link{
		ch: ch, magic: magic, matcher: proto.NewMatcher(magic),
		buf: make([]byte, proto.MaxRecord), nonce: make([]byte, 0, proto.NonceSize),
	}
}

// next waits until the host begins a session, answers and returns the
// session's connection. Everything before the answer belongs to the past. It
// fails only when ctx ends.
func (l *link) next(ctx context.Context) (*session, error) {
	delay := backoffMin
	for {
		if l.ready {
			if s, err := l.answer(); err == nil {
				return s, nil
			}
		}
		if _, err := l.step(); err == nil {
			delay = backoffMin
			continue
		}
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
		}
		delay = min(2*delay, backoffMax)
	}
}

// answer opens a new epoch. The write lock is what keeps bytes of the old one
// from following the answer.
func (l *link) answer() (*session, error) {
	l.write.Lock()
	defer l.write.Unlock()
	l.ready = false
	l.unframe.Reset()
	l.epoch++
	reply := append(append(make([]byte, 0, proto.MagicSize+proto.NonceSize), l.magic...), l.nonce...)
	if _, err := l.ch.Write(reply); err != nil {
		return nil, err
	}
	return &session{l: l, epoch: l.epoch, ended: make(chan struct{})}, nil
}

// step looks at the next bytes and returns a record's payload when one became
// whole. It reads at most once and returns nil when there is nothing yet, or
// when a new session waits (ready).
func (l *link) step() ([]byte, error) {
	if len(l.pending) == 0 {
		n, err := l.ch.Read(l.buf)
		if n == 0 {
			if err == nil {
				err = io.ErrNoProgress
			}
			return nil, err
		}
		l.pending = l.buf[:n]
	}
	if l.want {
		l.collect()
		return nil, nil
	}
	// Records are taken apart one by one, the pattern is looked for in the
	// same bytes: feed the matcher exactly what the unframer took.
	taken, payload := l.unframe.Feed(l.pending)
	end, found := l.matcher.Feed(l.pending[:taken])
	if found {
		l.begin(end)
		return nil, nil
	}
	l.pending = l.pending[taken:]
	return payload, nil
}

// begin starts collecting a nonce behind the magic that ended at end.
func (l *link) begin(end int) {
	l.pending = l.pending[end:]
	l.nonce = l.nonce[:0]
	l.want, l.ready = true, false
}

// collect takes bytes of the nonce. The magic is looked for there too: a host
// that died between magic and nonce is followed by another magic.
func (l *link) collect() {
	n := min(proto.NonceSize-len(l.nonce), len(l.pending))
	if end, found := l.matcher.Feed(l.pending[:n]); found {
		l.begin(end)
		return
	}
	l.nonce = append(l.nonce, l.pending[:n]...)
	l.pending = l.pending[n:]
	if len(l.nonce) == proto.NonceSize {
		l.want, l.ready = false, true
	}
}

// session is one epoch of the link, as the multiplexer's connection.
type session struct {
	l     *link
	epoch uint64
	rest  []byte // of a payload
	held  []byte // a header whose data is written next; guarded by the write lock
	once  sync.Once
	ended chan struct{}
}

// Read returns the host's bytes. It ends when the channel does or the host
// began another session.
func (s *session) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		payload, err := s.l.step()
		if err != nil || s.l.want || s.l.ready {
			s.end()
			return 0, io.EOF
		}
		s.rest = payload
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Write sends bytes if this is still the current session. A failure is
// reported only when the reader has noticed too: the multiplexer's shutdown
// waits for its reader, and would have its writers spin until then.
func (s *session) Write(p []byte) (int, error) {
	s.l.write.Lock()
	if s.stale() {
		s.l.write.Unlock()
		return 0, io.ErrClosedPipe
	}
	// What follows a held header is its data, whatever it looks like.
	first := len(s.held) == 0
	s.held = append(s.held, p...)
	if first && proto.Announces(p) {
		s.l.write.Unlock()
		return len(p), nil
	}
	_, err := s.l.ch.Write(s.held)
	s.held = s.held[:0]
	s.l.write.Unlock()
	if err != nil {
		<-s.ended
		return 0, err
	}
	return len(p), nil
}

func (s *session) stale() bool {
	select {
	case <-s.ended:
		return true
	default:
		return s.epoch != s.l.epoch
	}
}

// Close marks the session's end; the channel stays.
func (s *session) Close() error {
	s.end()
	return nil
}

func (s *session) end() { s.once.Do(func() { close(s.ended) }) }
