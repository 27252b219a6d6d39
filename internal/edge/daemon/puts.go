package daemon

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/sandbox/guest/proto"
)

// Limits of copies into sandboxes that come in pieces.
const (
	maxPuts = 256 // under way at once
	// putIdle is after what time one that nobody writes to is dropped, and with
	// it the half file that it left. Senders that wait for their own input say
	// that they are there.
	putIdle = 20 * time.Second
)

// puts are the copies under way. Each has a goroutine that reads its pieces
// from a pipe and hands them to the sandbox.
type puts struct {
	mu  sync.Mutex // guards all
	all map[string]*put
}

type put struct {
	busy  chan struct{} // a slot: one call at a time
	w     *io.PipeWriter
	next  uint64 // offset of the next byte
	idle  *time.Timer
	group *life.Group
	done  chan struct{} // closed with result and err
	r     proto.CopyResult
	err   error
	left  atomic.Bool // by its sender: nobody asks how it ended
}

func newPuts() *puts { return &puts{all: map[string]*put{}} }

// begin starts a copy; it ends at the latest with ctx.
func (s *puts) begin(ctx context.Context, copyTar func(context.Context, io.Reader) (proto.CopyResult, error)) (string, error) {
	r, w := io.Pipe()
	p := &put{busy: make(chan struct{}, 1), w: w, done: make(chan struct{}), group: life.NewGroup(ctx)}
	putID := "p-" + id.Random(16)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= maxPuts {
		return "", errs.New(errs.ResourceExhausted, "%d copies are under way: wait until one has ended", maxPuts)
	}
	s.all[putID] = p
	p.idle = time.AfterFunc(putIdle, func() {
		p.left.Store(true)
		_ = w.CloseWithError(errs.New(errs.DeadlineExceeded, "nobody wrote to the copy for %s", putIdle))
		select {
		case <-p.done: // it ended before, and was kept for its sender
			s.forget(putID)
		default:
		}
	})
	p.group.Go("copy", func(ctx context.Context) error {
		defer func() {
			close(p.done)
			if p.left.Load() {
				s.forget(putID)
			}
		}()
		stop := context.AfterFunc(ctx, func() { _ = w.CloseWithError(context.Cause(ctx)) })
		defer stop()
		p.r, p.err = copyTar(ctx, r)
		_ = r.CloseWithError(errors.Join(p.err, io.ErrClosedPipe)) // whoever writes on learns why
		return nil
	})
	return putID, nil
}

func (s *puts) get(ctx context.Context, putID string) (*put, func(), error) {
	s.mu.Lock()
	p, ok := s.all[putID]
	s.mu.Unlock()
	if !ok {
		return nil, nil, errs.New(errs.NotFound, "no copy %.80q is under way: begin it again", putID)
	}
	select {
	case p.busy <- struct{}{}:
		return p, func() { <-p.busy }, nil
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

// write takes the next piece. Bytes that were taken before are skipped.
func (s *puts) write(ctx context.Context, putID string, offset uint64, data []byte) (uint64, error) {
	p, release, err := s.get(ctx, putID)
	if err != nil {
		return 0, err
	}
	defer release()
	if offset > p.next {
		return 0, errs.New(errs.InvalidArgument, "a piece at byte %d where %d is next: a piece is missing", offset, p.next)
	}
	p.idle.Stop()
	defer p.idle.Reset(putIdle)
	if skip := p.next - offset; skip < uint64(len(data)) {
		n, err := p.w.Write(data[skip:])
		p.next += uint64(n)
		if err != nil {
			return p.next, p.failure(err)
		}
	}
	return p.next, nil
}

// failure is why a write failed: the sandbox's word when it has said it.
func (p *put) failure(err error) error {
	select {
	case <-p.done:
		if p.err != nil {
			return p.err
		}
		return errs.New(errs.FailedPrecondition, "the tar stream has ended: %w", err)
	default:
		return err
	}
}

// end closes a copy and waits for it, or drops it.
func (s *puts) end(ctx context.Context, putID string, abort bool) (proto.CopyResult, error) {
	p, release, err := s.get(ctx, putID)
	if err != nil {
		return proto.CopyResult{}, err
	}
	defer release()
	p.idle.Stop()
	if abort {
		_ = p.w.CloseWithError(errs.New(errs.Canceled, "the copy was given up by its sender"))
	} else {
		_ = p.w.Close()
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		p.idle.Reset(putIdle)
		return proto.CopyResult{}, context.Cause(ctx)
	}
	s.forget(putID)
	if abort {
		return p.r, nil
	}
	return p.r, p.err
}

func (s *puts) forget(putID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, putID)
}

// close drops every copy and waits for them.
func (s *puts) close() {
	s.mu.Lock()
	all := make([]*put, 0, len(s.all))
	for _, p := range s.all {
		all = append(all, p)
	}
	s.mu.Unlock()
	for _, p := range all {
		p.idle.Stop()
		_ = p.group.Stop() // its outcome was for a caller who is gone
	}
}
