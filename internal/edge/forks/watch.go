package forks

import (
	"context"
	"time"

	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/edge/cli"
)

// repaint is how often a live view is drawn anew.
const repaint = 100 * time.Millisecond

// watchParams say how a batch is watched.
type watchParams struct {
	total uint32
	plain bool
	job   *job
	began time.Time // zero: now
}

// display shows a batch.
type display interface {
	event(e *client.Event) error
	ran(o *outcome) error
	tick() error
	// end is called last, also when watching ended early.
	end() error
}

func (a *app) display(id string, p watchParams) display {
	if a.JSON {
		return &jsonDisplay{app: a}
	}
	book := newBook(id, p.total, p.job)
	if screen, ok := a.Screen(); ok && !p.plain {
		if p.began.IsZero() {
			p.began = time.Now()
		}
		return &liveDisplay{app: a, screen: screen, book: book, palette: a.Palette(), began: p.began}
	}
	return &plainDisplay{app: a, book: book}
}

// watch follows a batch to its end, and the commands in its forks to theirs.
func (a *app) watch(ctx context.Context, c *client.Client, b *client.Batch, p watchParams) error {
	show := a.display(b.ID(), p)
	tally := &tally{}
	err := a.follow(ctx, c, b, follower{show: show, tally: tally, job: p.job})
	if endErr := show.end(); err == nil {
		err = endErr
	}
	if errs.Is(err, errs.Canceled) && !tally.done {
		a.Say("batch %s goes on: see it with \"brood batch attach %[1]s\", stop it with \"brood batch cancel %[1]s\"", b.ID())
	}
	switch {
	case err != nil && !tally.done && !errs.Is(err, errs.Canceled):
		err = errs.New(errs.CodeOf(err), "batch %s is no longer watched, see it with \"brood batch attach %[1]s\": %w", b.ID(), err)
		return errs.With(err, "batch", b.ID())
	case err != nil:
		return err
	}
	return tally.verdict()
}

// restart starts a daemon where the last one ended while it was watched.
func (a *app) restart(ctx context.Context) error {
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	c.Close()
	return nil
}

type follower struct {
	show  display
	tally *tally
	job   *job
}

// follow is the loop of watch: it owns display and crew.
func (a *app) follow(ctx context.Context, c *client.Client, b *client.Batch, f follower) (err error) {
	events := make(chan *client.Event) // one at a time: the daemon keeps the rest
	var readErr error
	reader := life.NewGroup(ctx)
	reader.Go("events", func(ctx context.Context) error {
		defer close(events)
		readErr = read(ctx, b, events)
		return nil
	})
	crew := newCrew(ctx, c, f.job)
	defer func() {
		crew.stop()
		_ = reader.Stop() // readErr has it
		if err == nil {
			err = readErr
		}
	}()
	ticks := time.NewTicker(repaint)
	defer ticks.Stop()
	for events != nil || crew.busy() {
		select {
		case e, ok := <-events:
			if !ok {
				events = nil
				if !f.tally.done {
					return nil // the reader says why
				}
				continue
			}
			f.tally.note(e)
			if err := f.show.event(e); err != nil {
				return err
			}
			if e.Item != nil && e.Item.GetErrorCode() == "" && e.Item.GetError() == "" {
				crew.add(e.Item)
			}
		case o := <-crew.results:
			crew.took()
			f.tally.ran(o)
			if err := f.show.ran(o); err != nil {
				return err
			}
		case <-ticks.C:
			if err := f.show.tick(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// read passes events on until the last.
func read(ctx context.Context, b *client.Batch, to chan<- *client.Event) error {
	for e, err := range b.Events(ctx) {
		if err != nil {
			return err
		}
		select {
		case to <- e:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// tally is what decides the exit code.
type tally struct {
	done         bool
	total        int
	failed       int // forks
	first        string
	ranFailed    int // commands
	firstCommand string
	ranTotal     int
}

func (t *tally) note(e *client.Event) {
	switch {
	case e.Done != nil:
		t.done = true
	case e.Item != nil:
		t.total++
		if e.Item.GetErrorCode() != "" || e.Item.GetError() != "" {
			t.failed++
			if t.first == "" {
				t.first = e.Item.GetName() + ": " + e.Item.GetError()
			}
		}
	}
}

func (t *tally) ran(o *outcome) {
	t.ranTotal++
	if o.failed() {
		t.ranFailed++
		if t.firstCommand == "" {
			t.firstCommand = o.item.GetName() + ": " + o.reason()
		}
	}
}

// verdict is an error when any fork or command failed.
func (t *tally) verdict() error {
	switch {
	case t.failed > 0:
		return errs.New(errs.FailedPrecondition, "%d of %s failed: %s", t.failed, cli.Plural(t.total, "fork"), t.first)
	case t.ranFailed > 0:
		return errs.New(errs.FailedPrecondition, "the command failed in %d of %s: %s", t.ranFailed, cli.Plural(t.ranTotal, "fork"), t.firstCommand)
	}
	return nil
}
