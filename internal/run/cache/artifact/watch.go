package artifact

import (
	"context"
	"errors"
	"io"
	"time"

	"brood/internal/base/errs"
)

// watch ends an exchange that stands still.
type watch struct {
	ctx    context.Context //nolint:containedctx // it is the exchange's, and ends with it
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
}

// stored is at least how many bytes a second a server puts away before it
// answers.
const stored = 8 << 20

// watch begins with an exchange that sends size bytes.
func (c *Cache) watch(ctx context.Context, size int64) *watch {
	whole := stall + time.Duration(size/stored)*time.Second
	limit := whole
	if !c.answered.Load() {
		limit = first
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() {
		cancel(errs.New(errs.DeadlineExceeded, "it did not answer within %v", limit))
	})
	return &watch{ctx: ctx, cancel: cancel, timer: timer, limit: whole}
}

func (w *watch) alive() { w.timer.Reset(w.limit) }

func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// watchedBody is a body whose bytes show that the exchange goes on.
type watchedBody struct {
	*watch
	io.Reader
	end func() error // nil: what is sent, which does not end the exchange
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if n > 0 {
		b.alive()
	}
	if err != nil && !errors.Is(err, io.EOF) && b.ctx.Err() != nil {
		err = context.Cause(b.ctx)
	}
	return n, err
}

// Close is also called by net/http on what is sent, and is nothing there.
func (b *watchedBody) Close() error {
	if b.end == nil {
		return nil
	}
	b.stop()
	return b.end()
}
