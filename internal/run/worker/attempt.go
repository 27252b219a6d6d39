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
	"brood/internal/run"
	"brood/internal/run/worker/script"
)

// errTimeout ends an attempt that took longer than its task may.
var errTimeout = errors.New("the task's timeout is over")

// attempt is one execution of a task's steps.
type attempt struct {
	w    *Worker
	site site
	loan *loan // nil: it has no terminal

	mu sync.Mutex // guards the fields below
	// groups are the process groups that had members when last looked at.
	groups []int
	// stopped says that the attempt was asked to stop: a step that starts all
	// the same is stopped at once.
	stopped bool
	timers  []*time.Timer
}

// attempt executes the steps of plan until one fails.
func (w *Worker) attempt(ctx context.Context, o run.Order, plan *script.Plan, out io.Writer) run.Result {
	res := run.Result{Began: time.Now()}
	fail := func(err error) run.Result {
		res.Exit, res.Err, res.Ended = -1, err, time.Now()
		return res
	}
	if limit := o.Task.Timeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errTimeout)
		defer cancel()
	}
	output, err := newOutput(out, secretsOf(parseEnviron(o.Environ), o.Task.Define))
	if err != nil {
		return fail(err)
	}
	a := &attempt{w: w, site: w.meter.acquire(), loan: w.lend(o.Task)}
	w.track(a, true)
	defer w.track(a, false)
	undo := context.AfterFunc(ctx, a.stop)
	var used rusage
	for _, step := range plan.Steps {
		ended, err := a.step(step, output.w)
		if err != nil {
			res.Exit, res.Err = -1, errs.New(errs.CodeOf(err), "%s: %w", o.Task.ID, err)
			break
		}
		used.add(ended)
		if res.Exit, res.Signal = ended.exit(); res.Exit != 0 || ctx.Err() != nil {
			break
		}
	}
	res.Ended = time.Now()
	res.Usage = a.site.usage(used)
	res.TimedOut = errors.Is(context.Cause(ctx), errTimeout)
	stopping := !undo()
	res.Interrupted = a.loan != nil && !stopping && byKey(res.Exit)
	a.end(stopping, output)
	if err := output.err(); err != nil && res.Err == nil {
		res.Err = err
	}
	if stopping && !res.TimedOut {
		w.noteAbort()
		if res.Exit == 0 {
			// It was asked to end and did, in peace; its work is not done.
			res.Exit, res.Signal = 128+int(syscall.SIGTERM), signalName(syscall.SIGTERM)
		}
	}
	return res
}

// step runs one step to the end of its own process.
func (a *attempt) step(s script.Step, out *os.File) (ending, error) {
	c := command{
		path: s.Path, argv: s.Argv, dir: s.Dir, env: s.Env,
		files: []*os.File{a.w.null, out, out},
	}
	start, wait := a.site.start, endingOf
	if a.loan != nil {
		start = func(c command) (*os.Process, error) { return a.loan.start(a.site, c) }
		wait = a.loan.wait
		defer a.loan.takeBack()
	}
	p, err := start(c)
	if err != nil {
		return ending{}, errs.New(errs.FailedPrecondition, "%s could not be started in %s: %w", s.Path, s.Dir, err)
	}
	a.mu.Lock()
	a.groups = append(a.groups, p.Pid)
	stopped := a.stopped
	a.mu.Unlock()
	a.w.guard.begins(p.Pid)
	if stopped {
		a.stop()
	}
	ended, err := wait(p)
	if err != nil {
		return ending{}, errs.New(errs.Internal, "waiting for %s: %w", s.Path, err)
	}
	a.forgetEnded()
	return ended, nil
}

// forgetEnded drops the groups without members, whose numbers the system may
// give away again.
func (a *attempt) forgetEnded() (left bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kept := a.groups[:0]
	for _, g := range a.groups {
		if groupLives(g) {
			kept = append(kept, g)
		} else {
			a.w.guard.ends(g)
		}
	}
	a.groups = kept
	return len(kept) > 0
}

// stop asks everything of the attempt to end and, after the grace, ends it.
// It does not wait.
func (a *attempt) stop() {
	a.mu.Lock()
	a.stopped = true
	a.mu.Unlock()
	a.signal(syscall.SIGTERM, true)
	timer := time.AfterFunc(grace, func() { a.signal(syscall.SIGKILL, true) })
	a.mu.Lock()
	a.timers = append(a.timers, timer)
	a.mu.Unlock()
}

// disarm forgets the kills to come: the site is about to be another's.
func (a *attempt) disarm() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.timers {
		t.Stop()
	}
}

// signal reaches the groups and, with everything, also what left them, where
// the site knows its members.
func (a *attempt) signal(sig syscall.Signal, everything bool) {
	a.mu.Lock()
	groups := append([]int(nil), a.groups...)
	a.mu.Unlock()
	for _, g := range groups {
		// An error is that of a group that just ended.
		_ = syscall.Kill(-g, sig)
	}
	if !everything {
		return
	}
	for _, pid := range a.site.members() {
		_ = syscall.Kill(pid, sig)
	}
}

// end reads the output that is still to come and stops what is left, until
// nothing is: what it writes would be in the way of the next attempt, and in
// the result of whoever is next at the same files.
func (a *attempt) end(stopping bool, output *output) {
	if !stopping {
		output.finish(afterlife)
	}
	if stopping || a.forgetEnded() {
		if !stopping {
			a.signal(syscall.SIGTERM, false)
		}
		a.reap(stopping)
	}
	if stopping {
		output.finish(afterlife)
		a.disarm()
	}
	a.site.release()
}

// reap waits until nothing is left of what was asked to end: through the grace,
// then it is ended, however often that takes within another grace.
func (a *attempt) reap(everything bool) {
	gone := func() bool {
		return !a.forgetEnded() && (!everything || len(a.site.members()) == 0)
	}
	if waitFor(grace, gone) {
		return
	}
	waitFor(grace, func() bool {
		a.signal(syscall.SIGKILL, everything)
		return gone()
	})
}

// waitFor asks done more and more seldom, for at most limit.
func waitFor(limit time.Duration, done func() bool) bool {
	deadline := time.Now().Add(limit)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if done() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pause)
	}
}
