package worker

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/run"
	"brood/internal/run/worker/script"
)

// Times of R9.
const (
	// grace is how long what was asked to stop has to do so.
	grace = 2 * time.Second
	// afterlife is how long output is read that outlives the task's own process.
	afterlife = 250 * time.Millisecond
)

// Config says how a worker executes.
type Config struct {
	// Credentials names variables, with * as wildcard, that hold credentials of
	// this run: no task sees them. BROOD_* and turbo's token need not be named.
	Credentials []string
	// Sampling turns cgroups off: what tasks use is then read from the system
	// every so often.
	Sampling bool
	// Terminal is what interactive tasks get; nil: their input is empty and their
	// output captured, as everybody's.
	Terminal *Terminal
}

// Worker executes orders on this machine.
type Worker struct {
	deny    patterns
	planner *script.Planner
	meter   *meter
	null    *os.File
	// terminal is nil where there is none.
	terminal *Terminal
	guard    guard

	group *life.Group

	mu      sync.Mutex // guards the fields below
	closed  bool
	aborted bool
	live    map[*attempt]bool
	running sync.WaitGroup
}

// New returns a worker. It starts nothing and makes nothing until the first
// order.
func New(c Config) (*Worker, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	if err != nil {
		return nil, errs.New(errs.Internal, "the empty input of tasks: %w", err)
	}
	group := life.NewGroup(context.Background())
	return &Worker{
		deny:     parsePatterns(c.Credentials),
		planner:  script.NewPlanner(),
		meter:    newMeter(group, c.Sampling),
		null:     null,
		terminal: c.Terminal,
		group:    group,
		live:     map[*attempt]bool{},
	}, nil
}

// Execute runs one attempt of a task to its end and writes its output to out,
// standard output and standard error as one, with secrets masked. It is read
// at the pace at which out takes it and kept nowhere else. A task that has the
// Terminal writes there, and nothing to out. The end of ctx
// aborts: when Execute returns, nothing is left of the attempt's processes.
//
// A group, a task without a command, succeeds at once.
func (w *Worker) Execute(ctx context.Context, o run.Order, out io.Writer) run.Result {
	began := time.Now()
	fail := func(err error) run.Result {
		return run.Result{Exit: -1, Began: began, Ended: time.Now(), Err: err}
	}
	if !w.enter() {
		return fail(errs.New(errs.FailedPrecondition, "%s: the worker is closed", o.Task.ID))
	}
	defer w.running.Done()
	if err := ctx.Err(); err != nil {
		return fail(context.Cause(ctx))
	}
	if o.Task.Command.Empty() {
		return run.Result{Began: began, Ended: began}
	}
	plan, err := w.plan(ctx, o)
	if err != nil {
		return fail(err)
	}
	return w.attempt(ctx, o, plan, out)
}

func (w *Worker) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.running.Add(1)
	return true
}

func (w *Worker) plan(ctx context.Context, o run.Order) (*script.Plan, error) {
	vars := taskVars(o, w.deny)
	vars[run.Inside] = o.Root
	plan, err := w.planner.Plan(ctx, script.Request{
		Root:    o.Root,
		Dir:     o.Task.Dir,
		Command: o.Task.Command,
		Args:    o.Task.Args,
		Manager: o.Manager,
		Vars:    vars,
	})
	if err != nil {
		return nil, errs.New(errs.CodeOf(err), "%s: %w", o.Task.ID, err)
	}
	return plan, nil
}

// Kill ends everything that is being executed at once, without the time to end
// by itself that the end of a context leaves.
func (w *Worker) Kill() {
	w.mu.Lock()
	all := make([]*attempt, 0, len(w.live))
	for a := range w.live {
		all = append(all, a)
	}
	w.mu.Unlock()
	for _, a := range all {
		a.signal(syscall.SIGKILL, true)
	}
}

func (w *Worker) track(a *attempt, lives bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lives {
		w.live[a] = true
	} else {
		delete(w.live, a)
	}
}

// noteAbort remembers that the run was stopped: then nothing may be left of
// what its earlier tasks left behind on purpose either.
func (w *Worker) noteAbort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.aborted = true
}

// Close waits for the orders being executed, which the caller aborts if it
// wants them to end sooner, and for what they left behind. It may be called
// again.
func (w *Worker) Close() error {
	w.mu.Lock()
	again := w.closed
	w.closed = true
	w.mu.Unlock()
	if again {
		return nil
	}
	w.running.Wait()
	w.mu.Lock()
	aborted := w.aborted
	w.mu.Unlock()
	w.meter.close(aborted)
	return errors.Join(w.group.Wait(), w.guard.close(), w.planner.Close(), w.null.Close())
}
