package life

import (
	"context"
	"errors"
	"sync"
	"time"
)

// UndoLimit bounds the cleanup of a half-made thing. It is generous: a stuck
// cleanup is worse reported late than cut short.
const UndoLimit = 30 * time.Second

// Undo collects what takes back the steps done so far. Call Do after each
// step, Keep when the whole succeeded, and Run in a defer.
type Undo struct {
	mu    sync.Mutex // guards steps
	steps []func(context.Context) error
}

// Do adds a step; steps run last first.
func (u *Undo) Do(step func(context.Context) error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.steps = append(u.steps, step)
}

// Keep forgets the steps: the thing is whole.
func (u *Undo) Keep() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.steps = nil
}

// Run undoes the steps on a context of its own, which the end of ctx does not
// end, and joins their errors to *err without replacing it.
func (u *Undo) Run(ctx context.Context, err *error) {
	u.mu.Lock()
	steps := u.steps
	u.steps = nil
	u.mu.Unlock()
	if len(steps) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), UndoLimit)
	defer cancel()
	for i := len(steps) - 1; i >= 0; i-- {
		if e := steps[i](ctx); e != nil {
			*err = errors.Join(*err, e)
		}
	}
}
