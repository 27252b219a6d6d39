package cache

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

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

// shared is the use of a Remote: errors are misses, said once.
type shared struct {
	remote Remote
	warn   func(error)
	group  *life.Group
	queue  chan upload
	once   sync.Once
	failed atomic.Int64
}

type upload struct {
	e     *entry.Entry
	local *store.Store
}

func newShared(ctx context.Context, r Remote, warn func(error)) *shared {
	s := &shared{remote: r, warn: warn, group: life.NewGroup(context.WithoutCancel(ctx)), queue: make(chan upload, waiting)}
	for range uploads {
		s.group.Go("upload", func(ctx context.Context) error {
			for u := range s.queue {
				if ctx.Err() == nil && s.usable() {
					s.note("upload", s.remote.Save(ctx, u.e, u.local))
				}
			}
			return nil
		})
	}
	return s
}

func (s *shared) usable() bool { return s.failed.Load() < patience }

// note counts failures and says the first.
func (s *shared) note(what string, err error) {
	if err == nil || errs.Is(err, errs.NotFound) {
		s.failed.Store(0)
		return
	}
	if errs.Is(err, errs.Canceled) {
		return
	}
	s.failed.Add(1)
	s.once.Do(func() {
		s.warn(fmt.Errorf("the shared cache %s fails, and is left alone if it goes on: %s: %w", s.remote.Name(), what, err))
	})
}

func (s *shared) entry(ctx context.Context, key run.Key, local *store.Store) *entry.Entry {
	if !s.usable() {
		return nil
	}
	e, err := s.remote.Entry(ctx, key, local)
	s.note("look up a result", err)
	if err != nil || e.Key != key || e.Check() != nil {
		return nil
	}
	return e
}

func (s *shared) fetch(ctx context.Context, list []entry.Content, local *store.Store) error {
	if !s.usable() {
		return errs.New(errs.Unavailable, "the shared cache %s fails", s.remote.Name())
	}
	err := s.remote.Fetch(ctx, list, local)
	s.note("fetch outputs", err)
	return err
}

func (s *shared) upload(ctx context.Context, e *entry.Entry, local *store.Store) {
	select {
	case s.queue <- upload{e, local}:
	case <-ctx.Done():
	}
}

// drain waits for the uploads; the end of ctx gives up what is left.
func (s *shared) drain(ctx context.Context) {
	close(s.queue)
	stop := context.AfterFunc(ctx, func() { _ = s.group.Stop() })
	defer stop()
	_ = s.group.Wait() // uploads report their failures themselves
}
