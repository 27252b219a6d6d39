//go:build linux

package pid1

import (
	"context"
	"sync"
)

// gate is closed while user processes are frozen. Whatever starts programs,
// writes to them or moves bytes for the host passes it first, in steps that
// end by themselves.
type gate struct {
	mu     sync.Mutex
	inside int
	shut   bool
	change chan struct{} // closed and replaced at every change
}

func newGate() *gate { return &gate{change: make(chan struct{})} }

func (g *gate) changed() {
	close(g.change)
	g.change = make(chan struct{})
}

// enter waits until the gate is open and counts the caller as inside.
func (g *gate) enter(ctx context.Context) error {
	for {
		g.mu.Lock()
		if !g.shut {
			g.inside++
			g.mu.Unlock()
			return nil
		}
		change := g.change
		g.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-change:
		}
	}
}

// tryEnter is enter without waiting.
func (g *gate) tryEnter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.shut {
		g.changed()
	}
}

// pass waits until the gate is open.
func (g *gate) pass(ctx context.Context) error {
	if err := g.enter(ctx); err != nil {
		return err
	}
	g.leave()
	return nil
}

// closed reports whether the gate is shut.
func (g *gate) closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// close shuts the gate and waits until nobody is inside. When ctx ends first,
// it is open again.
func (g *gate) close(ctx context.Context) error {
	g.mu.Lock()
	g.shut = true
	g.mu.Unlock()
	for {
		g.mu.Lock()
		inside, change := g.inside, g.change
		g.mu.Unlock()
		if inside == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			g.open()
			return ctx.Err()
		case <-change:
		}
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		g.shut = false
		g.changed()
	}
}
