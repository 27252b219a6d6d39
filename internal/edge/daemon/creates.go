package daemon

import (
	"context"
	"sync"

	"brood/internal/base/errs"
	"brood/internal/base/id"
)

// creates are the creates under way, so that another call can end one.
type creates struct {
	mu  sync.Mutex // guards all
	all map[id.Name]context.CancelCauseFunc
}

func newCreates() *creates { return &creates{all: map[id.Name]context.CancelCauseFunc{}} }

// begin remembers a create until done. Of two with one name the host refuses
// the second, which must not take the first one's place here.
func (c *creates) begin(ctx context.Context, name id.Name) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, other := c.all[name]; other || name == "" {
		return ctx, func() { cancel(nil) }
	}
	c.all[name] = cancel
	return ctx, func() {
		cancel(nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.all, name)
	}
}

// cancel ends a create and says whether there was one.
func (c *creates) cancel(name id.Name) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cancel, ok := c.all[name]
	if ok {
		cancel(errs.New(errs.Canceled, "the create of %s was cancelled", name))
	}
	return ok
}
