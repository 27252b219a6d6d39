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

// errTimeout ends an attempt that took longer than its task may.
var errTimeout = errors.New("the task's timeout is over")

// attempt is one execution of a task's steps.
type attempt struct {
	w    *Worker
	site site

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
	a := &attempt{w: w, site: w.meter.acquire()}
	w.track(a, true)
	defer w.track(a, false)
	undo := context.AfterFunc(ctx, a.stop)
	var used rusage
	for _, step := range plan.Steps {
		state, err := a.step(step, output.w)
		if err != nil {
			res.Exit, res.Err = -1, errs.New(errs.CodeOf(err), "%s: %w", o.Task.ID, err)
			break
		}
		used.add(state)
		if res.Exit, res.Signal = exitOf(state); res.Exit != 0 || ctx.Err() != nil {
			break
		}
	}
	res.Ended = time.Now()
	res.Usage = a.site.usage(used)
	res.TimedOut = errors.Is(context.Cause(ctx), errTimeout)
	stopping := !undo()
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
func (a *attempt) step(s script.Step, out *os.File) (*os.ProcessState, error) {
	p, err := a.site.start(command{
		path: s.Path, argv: s.Argv, dir: s.Dir, env: s.Env,
		files: []*os.File{a.w.null, out, out},
	})
	if err != nil {
		return nil, errs.New(errs.FailedPrecondition, "%s could not be started in %s: %w", s.Path, s.Dir, err)
	}
	a.mu.Lock()
	a.groups = append(a.groups, p.Pid)
	stopped := a.stopped
	a.mu.Unlock()
	if stopped {
		a.stop()
	}
	state, err := p.Wait()
	if err != nil {
		return nil, errs.New(errs.Internal, "waiting for %s: %w", s.Path, err)
	}
	a.forgetEnded()
	return state, nil
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

// end reads the output that is still to come and stops what is left. When
// the attempt was stopped it waits until nothing is; else the worker's group
// does, and the result is not held up.
func (a *attempt) end(stopping bool, output *output) {
	if stopping {
		a.reap(true)
		output.finish(afterlife)
		a.disarm()
		a.site.release()
		return
	}
	output.finish(afterlife)
	if !a.forgetEnded() {
		a.site.release()
		return
	}
	a.signal(syscall.SIGTERM, false)
	a.w.group.Go("what a task left behind", func(context.Context) error {
		a.reap(false)
		a.site.release()
		return nil
	})
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

// exitOf reads how a process ended.
func exitOf(state *os.ProcessState) (int, string) {
	ws, ok := state.Sys().(syscall.WaitStatus)
	if !ok {
		return state.ExitCode(), ""
	}
	if ws.Signaled() {
		return 128 + int(ws.Signal()), signalName(ws.Signal())
	}
	return ws.ExitStatus(), ""
}

// output is the pipe that a task's processes write to, and its reader.
type output struct {
	r, w   *os.File
	mask   *masker
	group  *life.Group
	failed error // of the writer that the caller gave; read after finish
	cut    bool
}

func newOutput(out io.Writer, secrets [][]byte) (*output, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, errs.New(errs.ResourceExhausted, "a pipe for the task's output: %w", err)
	}
	o := &output{r: r, w: w, mask: newMasker(out, secrets), group: life.NewGroup(context.Background())}
	o.group.Go("output", func(context.Context) error { o.pump(); return nil })
	return o, nil
}

// pump reads until every writer is gone or the time is over. When the output
// cannot be written any more it is read all the same: the task is not to
// stall or die of it.
func (o *output) pump() {
	buf := make([]byte, 32<<10)
	for {
		n, err := o.r.Read(buf)
		if n > 0 && o.failed == nil {
			_, o.failed = o.mask.Write(buf[:n])
		}
		if err != nil {
			o.cut = errors.Is(err, os.ErrDeadlineExceeded)
			break
		}
	}
	if o.failed == nil {
		o.failed = o.mask.Flush()
	}
	if o.cut && o.failed == nil {
		_, o.failed = io.WriteString(o.mask.out, "\n[brood] output ends here: a process that the task left behind still held it open\n")
	}
}

// finish waits for the end of the output, for at most limit.
func (o *output) finish(limit time.Duration) {
	o.w.Close()
	// A pipe that knows no deadlines would hold the result as long as a child
	// holds the pipe; closing it ends the reader as well.
	if err := o.r.SetReadDeadline(time.Now().Add(limit)); err != nil {
		o.r.Close()
	}
	_ = o.group.Wait() // the pump returns no error
	o.r.Close()
}

func (o *output) err() error {
	if o.failed == nil {
		return nil
	}
	return errs.New(errs.CodeOf(o.failed), "the task's output could not be written: %w", o.failed)
}
