package forks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	broodv1 "brood/api/brood/v1"
	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/base/life"
)

const (
	// maxCollected is how much of each of a command's two outputs is kept.
	maxCollected = 1 << 20
	// jobCleanup bounds what is done for a fork after an interruption.
	jobCleanup = 10 * time.Second
	sigTerm    = 15
)

// job is a command that is run in many forks.
type job struct {
	options  client.ExecOptions
	parallel int
	remove   bool
}

// newJob makes a job; without a command there is none.
func newJob(o client.ExecOptions, parallel int, remove bool) (*job, error) {
	if parallel < 1 {
		return nil, errs.New(errs.InvalidArgument, "--parallel %d: write a number from 1", parallel)
	}
	if len(o.Argv) == 0 {
		return nil, nil
	}
	return &job{options: o, parallel: parallel, remove: remove}, nil
}

// outcome is how a job ended in one fork.
type outcome struct {
	item *client.ForkBatchItem
	// exit is nil when err is set.
	exit           *broodv1.ExecExit
	err            error
	stdout, stderr collector
	elapsed        time.Duration
}

func (o *outcome) failed() bool { return o.err != nil || o.exit.GetCode() != 0 }

// reason is why it failed.
func (o *outcome) reason() string {
	switch {
	case o.err != nil:
		return o.err.Error()
	case o.exit.GetError() != "":
		return o.exit.GetError()
	case o.exit.GetSignal() != 0:
		return fmt.Sprintf("the command was ended by signal %d", o.exit.GetSignal())
	}
	return fmt.Sprintf("the command ended with %d", o.exit.GetCode())
}

// collector keeps the beginning of what is written to it.
type collector struct {
	bytes.Buffer
	cut bool
}

// Write keeps what fits.
func (c *collector) Write(p []byte) (int, error) {
	room := maxCollected - c.Len()
	if len(p) > room {
		c.cut = true
	}
	_, err := c.Buffer.Write(p[:min(len(p), room)])
	return len(p), err
}

// text is what was collected: as text, or as bytes when it is not UTF-8. The
// cut may be within a character, whose beginning is then left out.
func (c *collector) text() (text *string, raw []byte) {
	b := c.Bytes()
	if c.cut {
		b = wholeRunes(b)
	}
	if !utf8.Valid(b) {
		return nil, c.Bytes()
	}
	s := string(b)
	return &s, nil
}

// wholeRunes is b without the beginning of a character at its end.
func wholeRunes(b []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		tail := b[len(b)-n:]
		if !utf8.RuneStart(tail[0]) {
			continue
		}
		if !utf8.FullRune(tail) {
			return b[:len(b)-n]
		}
		break
	}
	return b
}

// run runs the job in one fork.
func (j *job) run(ctx context.Context, c *client.Client, item *client.ForkBatchItem) *outcome {
	o := &outcome{item: item}
	began := time.Now()
	o.exit, o.err = j.exec(ctx, c, reachable(item), o)
	o.elapsed = time.Since(began)
	if j.remove {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), jobCleanup)
		defer cancel()
		if err := c.DeleteSandbox(ctx, reachable(item)); err != nil && !errs.Is(err, errs.NotFound) {
			o.err = errors.Join(o.err, fmt.Errorf("remove it: %w", err))
		}
	}
	return o
}

// exec runs the command. One that is interrupted is told to end, as it would
// be in a terminal.
func (j *job) exec(ctx context.Context, c *client.Client, sandbox string, o *outcome) (*broodv1.ExecExit, error) {
	e, err := c.StartExec(ctx, sandbox, j.options)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	exit, err := e.Wait(ctx, client.Streams{Out: &o.stdout, Err: &o.stderr})
	if ctx.Err() != nil && err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), jobCleanup)
		defer cancel()
		if signalErr := e.Signal(ctx, sigTerm); signalErr != nil && !execOver(signalErr) {
			err = errors.Join(err, signalErr)
		}
	}
	return exit, err
}

// reachable is how a fork is named for the daemon.
func reachable(item *client.ForkBatchItem) string {
	if h := item.GetHost(); h != "" && h != "local" {
		return h + "/" + item.GetName()
	}
	return item.GetName()
}

// crew runs a job in forks as they come, so many at once. It belongs to one
// goroutine, which takes the results.
type crew struct {
	job     *job // nil: nothing is run
	client  *client.Client
	group   *life.Group
	waiting []*client.ForkBatchItem
	running int
	results chan *outcome
}

func newCrew(ctx context.Context, c *client.Client, j *job) *crew {
	w := &crew{job: j, client: c, group: life.NewGroup(ctx)}
	if j != nil {
		w.results = make(chan *outcome, j.parallel) // nobody waits to hand one over
	}
	return w
}

// add gives the crew a fork.
func (w *crew) add(item *client.ForkBatchItem) {
	if w.job != nil {
		w.waiting = append(w.waiting, item)
		w.fill()
	}
}

// took is to be called for each result.
func (w *crew) took() {
	w.running--
	w.fill()
}

func (w *crew) fill() {
	for w.running < w.job.parallel && len(w.waiting) > 0 && w.group.Context().Err() == nil {
		item := w.waiting[0]
		w.waiting = w.waiting[1:]
		w.running++
		w.group.Go(item.GetName(), func(ctx context.Context) error {
			w.results <- w.job.run(ctx, w.client, item)
			return nil
		})
	}
}

func (w *crew) busy() bool { return w.running > 0 || len(w.waiting) > 0 }

// stop ends what runs, and waits.
func (w *crew) stop() { _ = w.group.Stop() } // they report by results
