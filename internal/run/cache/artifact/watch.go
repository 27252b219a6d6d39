package artifact

import (
	"context"
	"errors"
	"io"
	"time"

	"brood/internal/base/errs"
)

// watch ends an exchange that stands still, or all but.
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
		cancel(errs.New(errs.DeadlineExceeded, "it did not answer within %v, or too slowly", limit))
	})
	return &watch{ctx: ctx, cancel: cancel, timer: timer, limit: whole}
}

func (w *watch) alive() { w.timer.Reset(w.limit) }

func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// watchedBody is a body whose bytes show that the exchange goes on: a drop now
// and then does not, or an answer could take hours.
type watchedBody struct {
	*watch
	io.Reader
	fresh int          // bytes since the exchange was last found alive
	end   func() error // nil: what is sent, which does not end the exchange
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	sent := b.end == nil && errors.Is(err, io.EOF) // the answer may take its time from here
	if b.fresh += n; b.fresh >= pace || sent {
		b.fresh = 0
		b.alive()
	}
	if late := b.late(); err != nil && !errors.Is(err, io.EOF) && late != nil {
		err = late
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

// late says why the exchange was ended before its time; nil when it was not.
func (b *watchedBody) late() error {
	if b.ctx.Err() == nil {
		return nil
	}
	return context.Cause(b.ctx)
}

// rest reads at most so many bytes of an answer that hardly matters any more,
// for a moment.
func (b *watchedBody) rest(most int64) []byte {
	late := time.AfterFunc(linger, b.stop)
	defer late.Stop()
	text, _ := io.ReadAll(io.LimitReader(b, most)) // what came is all there is to say
	return text
}
