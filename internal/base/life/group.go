package life

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Group is a set of goroutines with one context and one end.
type Group struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu   sync.Mutex // guards errs
	errs []error
	wg   sync.WaitGroup
}

// NewGroup returns a group whose context ends when ctx ends, when a goroutine
// of the group returns an error, or at Stop.
func NewGroup(ctx context.Context) *Group {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{ctx: ctx, cancel: cancel}
}

// Context returns the group's context.
func (g *Group) Context() context.Context { return g.ctx }

// Go runs f in a goroutine of the group. The name is put in front of its
// error. An error ends the group's context; Wait returns it.
func (g *Group) Go(name string, f func(ctx context.Context) error) {
	g.wg.Go(func() {
		if err := f(g.ctx); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
			g.mu.Lock()
			g.errs = append(g.errs, err)
			g.mu.Unlock()
			g.cancel(err)
		}
	})
}

// Stop ends the group's context and waits. It returns the errors of
// goroutines that failed for another reason than being stopped.
func (g *Group) Stop() error {
	g.cancel(context.Canceled)
	return g.Wait()
}

// Wait waits until every goroutine has returned, ends the context and returns
// their joined errors; the end of the context alone is not an error.
func (g *Group) Wait() error {
	g.wg.Wait()
	g.cancel(context.Canceled)
	g.mu.Lock()
	defer g.mu.Unlock()
	var real []error
	for _, err := range g.errs {
		if !errors.Is(err, context.Canceled) {
			real = append(real, err)
		}
	}
	return errors.Join(real...)
}

// Each calls f for 0..n-1, at most limit at once, and returns one error per
// index. A failure stops nobody.
func Each(ctx context.Context, n, limit int, f func(ctx context.Context, i int) error) []error {
	results := make([]error, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	// A few goroutines take turns instead of one for each: a stack that has
	// grown once serves them all.
	for range min(n, max(1, limit)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if ctx.Err() != nil {
					results[i] = context.Cause(ctx)
				} else {
					results[i] = f(ctx, i)
				}
			}
		})
	}
	wg.Wait()
	return results
}
