package cache

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/run"
	"brood/internal/run/cache/entry"
	"brood/internal/run/cache/store"
)

// Remote is a cache that machines share. Contents pass through the local store:
// a Remote puts there what it fetches, checked, and reads from there what it
// uploads. Safe for concurrent use.
type Remote interface {
	// Name is how messages call it: its address.
	Name() string
	// Entry returns the result for a key; NotFound is a miss. It may bring the
	// contents along.
	Entry(ctx context.Context, key run.Key, local *store.Store) (*entry.Entry, error)
	// Fetch brings contents into the local store.
	Fetch(ctx context.Context, list []entry.Content, local *store.Store) error
	// Save uploads a result with its contents.
	Save(ctx context.Context, e *entry.Entry, local *store.Store) error
}

const (
	uploads  = 8    // at once
	waiting  = 1000 // uploads in the queue; when it is full a save waits
	patience = 5    // failures in a row after which a shared cache is left alone
)

// shared is the use of a Remote: errors are misses, said once. One that does
// not answer in time is not waited for again: what is on its way ends, and
// nothing more is asked of it.
type shared struct {
	remote Remote
	warn   func(error)
	group  *life.Group // of the uploads
	queue  chan upload
	closed sync.Once
	failed atomic.Int64
	off    context.Context // ends when the remote is used no more
	end    context.CancelCauseFunc
	left   atomic.Int64 // uploads that are not through

	mu   sync.Mutex // guards what follows
	said bool       // the user knows that it fails
	lost int        // results that were not uploaded, and not said
	why  error      // of the first of them
}

type upload struct {
	e     *entry.Entry
	local *store.Store
}

func newShared(ctx context.Context, r Remote, warn func(error)) *shared {
	s := &shared{remote: r, warn: warn, group: life.NewGroup(context.WithoutCancel(ctx)), queue: make(chan upload, waiting)}
	s.off, s.end = context.WithCancelCause(context.WithoutCancel(ctx))
	for range uploads {
		s.group.Go("upload", func(ctx context.Context) error {
			for u := range s.queue {
				s.put(ctx, u)
				s.left.Add(-1)
			}
			return nil
		})
	}
	return s
}

func (s *shared) usable() bool { return s.off.Err() == nil }

// asking bounds a use of the remote to the time that it is used at all.
func (s *shared) asking(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.off, func() { cancel(context.Cause(s.off)) })
	return ctx, func() { stop(); cancel(nil) }
}

// note counts failures, and gives the remote up when it does not answer or
// fails again and again.
func (s *shared) note(err error) {
	switch {
	case err == nil || errs.Is(err, errs.NotFound):
		s.failed.Store(0)
	case errs.Is(err, errs.Canceled):
	case errs.Is(err, errs.DeadlineExceeded) || s.failed.Add(1) >= patience:
		s.end(err)
	}
}

// tell says that the remote fails, unless that was said.
func (s *shared) tell(what string, err error) {
	if err == nil || errs.Is(err, errs.NotFound) || errs.Is(err, errs.Canceled) {
		return
	}
	s.mu.Lock()
	said := s.said
	s.said = true
	s.mu.Unlock()
	switch {
	case said:
	case errs.Is(err, errs.DeadlineExceeded):
		s.warn(fmt.Errorf("the shared cache %s does not answer, and this run does without it: %s: %w", s.remote.Name(), what, err))
	default:
		s.warn(fmt.Errorf("the shared cache %s fails, and is left alone if it goes on: %s: %w", s.remote.Name(), what, err))
	}
}

func (s *shared) entry(ctx context.Context, key run.Key, local *store.Store) *entry.Entry {
	if !s.usable() {
		return nil
	}
	asking, stop := s.asking(ctx)
	defer stop()
	e, err := s.remote.Entry(asking, key, local)
	if ctx.Err() == nil {
		s.note(err)
		s.tell("look up a result", err)
	}
	if err != nil || e.Key != key || e.Check() != nil {
		return nil
	}
	return e
}

func (s *shared) fetch(ctx context.Context, list []entry.Content, local *store.Store) error {
	if !s.usable() {
		return errs.New(errs.Unavailable, "the shared cache %s fails", s.remote.Name())
	}
	asking, stop := s.asking(ctx)
	defer stop()
	err := s.remote.Fetch(asking, list, local)
	if ctx.Err() == nil {
		s.note(err)
		s.tell("fetch outputs", err)
	}
	return err
}

func (s *shared) upload(ctx context.Context, e *entry.Entry, local *store.Store) {
	s.left.Add(1)
	select {
	case s.queue <- upload{e, local}:
	case <-ctx.Done():
		s.left.Add(-1)
		s.lose(context.Cause(ctx))
	}
}

// put uploads a result.
func (s *shared) put(ctx context.Context, u upload) {
	if !s.usable() {
		s.lose(context.Cause(s.off))
		return
	}
	asking, stop := s.asking(ctx)
	defer stop()
	if asking.Err() != nil {
		s.lose(context.Cause(asking))
		return
	}
	err := s.remote.Save(asking, u.e, u.local)
	s.note(err)
	if err != nil {
		s.lose(err)
	}
}

func (s *shared) lose(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost++
	if s.why == nil {
		s.why = err
	}
}

// everyLeft is how often who waits for the uploads is told how many are left.
const everyLeft = 250 * time.Millisecond

// drain waits for the uploads and says how many did not succeed; the end of ctx
// gives up what is left. told may be nil. Nothing may be uploaded any more.
func (s *shared) drain(ctx context.Context, told func(left int)) {
	s.closed.Do(func() { close(s.queue) })
	waiter := life.NewGroup(context.WithoutCancel(ctx))
	done := make(chan struct{})
	waiter.Go("uploads", func(context.Context) error {
		defer close(done)
		return s.group.Wait() // uploads report their failures themselves
	})
	defer func() { _ = waiter.Wait() }()
	stop := context.AfterFunc(ctx, func() { _ = s.group.Stop() })
	defer stop()
	tick := time.NewTicker(everyLeft)
	defer tick.Stop()
	for last := 0; ; {
		select {
		case <-done:
			s.sum()
			return
		case <-tick.C:
			if n := int(s.left.Load()); told != nil && n > 0 && n != last {
				last = n
				told(n)
			}
		}
	}
}

// sum says once what was not uploaded. Where the remote was given up and the
// user told so, that is known.
func (s *shared) sum() {
	s.mu.Lock()
	lost, why := s.lost, s.why
	s.lost = 0
	if s.said && !s.usable() {
		lost = 0
	}
	s.mu.Unlock()
	if lost == 0 {
		return
	}
	what := "a result"
	if lost > 1 {
		what = fmt.Sprintf("%d results", lost)
	}
	if errs.Is(why, errs.Canceled) {
		why = errs.New(errs.Canceled, "the upload was interrupted")
	}
	s.warn(fmt.Errorf("the shared cache %s did not take %s: %w", s.remote.Name(), what, why))
}

// Share waits until the results that were saved are in the shared cache, and
// warns of those that could not be brought there; the end of ctx gives up what
// is not. told hears now and then how many are left. Nothing may be saved any
// more.
func (c *Cache) Share(ctx context.Context, told func(left int)) {
	if c.shared != nil {
		c.shared.drain(ctx, told)
	}
}
