package orchestrator_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/orchestrator"
)

func TestSecondRunIsCached(t *testing.T) {
	w := newWorld()
	w.commands["p#b"] = func(_ context.Context, _ int, out io.Writer) int {
		fmt.Fprint(out, "hello ")
		fmt.Fprint(out, "ö")
		return 0
	}
	r := w.run(t.Context(), t, nil, "a", "b: a")
	if got := statuses(r); got != "a=success b=success" || !r.OK() {
		t.Errorf("first: %s", got)
	}
	if w.recorded != r {
		t.Error("the run is not recorded")
	}
	r = w.run(t.Context(), t, nil, "a", "b: a")
	if got := statuses(r); got != "a=cached b=cached" || len(w.ran) > 0 {
		t.Errorf("second: %s, ran %v", got, w.ran)
	}
	if got := w.text("p#b"); got != "hello ö" {
		t.Errorf("replayed %q", got)
	}
	if f := r.Finished; f.Cached != 2 || f.Tasks != 2 || f.Status != run.Success {
		t.Errorf("summary %+v", f)
	}
	_, begins := w.events[0].(orchestrator.Began)
	_, ends := w.events[len(w.events)-1].(orchestrator.Finished)
	if !begins || !ends {
		t.Errorf("events do not begin and end as they should: %v", w.events)
	}
}

func TestFailure(t *testing.T) {
	w := newWorld()
	w.commands["p#a"] = exits(3)
	r := w.run(t.Context(), t, nil, "a", "b: a", "c: b", "d")
	if got := statuses(r); got != "a=failed b=skipped c=skipped d=success" || r.OK() {
		t.Errorf("%s", got)
	}
	for _, e := range oneOf[orchestrator.Ended](w) {
		if e.Status == run.Skipped && e.Cause != "p#a" || e.Status == run.Failed && e.Exit != 3 {
			t.Errorf("%+v", e)
		}
	}
	if got := r.Finished.Failures; !reflect.DeepEqual(got, []id.Task{"p#a"}) {
		t.Errorf("failures %v", got)
	}
	r = w.run(t.Context(), t, func(c *orchestrator.Config) { c.Continue = "always" }, "a", "b: a")
	if got := statuses(r); got != "a=failed b=success" {
		t.Errorf("always: %s", got)
	}
	if len(w.store) != 1 { // d
		t.Errorf("b ran over a failure and is saved: %v", w.store)
	}
}

func TestRetry(t *testing.T) {
	w := newWorld()
	w.commands["p#a"] = func(_ context.Context, attempt int, out io.Writer) int {
		fmt.Fprintf(out, "try %d\n", attempt)
		return max(0, 3-attempt)
	}
	r := w.run(t.Context(), t, func(c *orchestrator.Config) { c.Retries = 2 }, "a")
	if got := statuses(r); got != "a=success" || r.Ended[0].Attempts != 3 || len(oneOf[orchestrator.Retrying](w)) != 2 {
		t.Errorf("%s %+v", got, r.Ended)
	}
	r = w.run(t.Context(), t, nil, "a")
	if got := w.text("p#a"); got != "try 3\n" || !r.OK() {
		t.Errorf("the output of the last attempt is saved, got %q", got)
	}
	w.store = map[run.Key]*stored{}
	r = w.run(t.Context(), t, func(c *orchestrator.Config) { c.Past = map[id.Task]orchestrator.Past{"p#a": {Flaky: true}} }, "a")
	if r.Ended[0].Attempts != 2 || r.Ended[0].Status != run.Failed {
		t.Errorf("a flaky task has one retry: %+v", r.Ended)
	}
}

// TestAnInteractiveTaskBeginsWhenItsBeginIsSeen: until then the listener may
// write where the task is about to.
func TestAnInteractiveTaskBeginsWhenItsBeginIsSeen(t *testing.T) {
	interactive := func(c *orchestrator.Config) {
		for _, task := range c.Tasks {
			task.Interactive, task.Cache = true, false
		}
		c.Past = map[id.Task]orchestrator.Past{"p#a": {Flaky: true}}
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		seen := false
		w.commands["p#a"] = func(context.Context, int, io.Writer) int {
			if !seen {
				t.Error("it began before")
			}
			return 130
		}
		r := w.run(t.Context(), t, func(c *orchestrator.Config) {
			interactive(c)
			c.Listen = func(_ time.Time, e orchestrator.Event) {
				if _, ok := e.(orchestrator.Started); ok {
					time.Sleep(time.Second) // a slow terminal
					seen = true
				}
			}
		}, "a")
		if e := r.Ended[0]; e.Status != run.Failed || e.Attempts != 1 {
			t.Errorf("what a user ended is not tried again: %+v", e)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w.commands["p#a"] = func(ctx context.Context, _ int, _ io.Writer) int {
			if ctx.Err() == nil {
				t.Error("it began")
			}
			return 143
		}
		stuck := make(chan struct{})
		r := w.run(ctx, t, func(c *orchestrator.Config) {
			interactive(c)
			c.Listen = func(_ time.Time, e orchestrator.Event) {
				if _, ok := e.(orchestrator.Started); ok {
					<-ctx.Done() // nobody reads what it writes
					time.Sleep(time.Second)
					close(stuck)
				}
			}
		}, "a")
		<-stuck
		if got := statuses(r); got != "a=aborted" {
			t.Error(got)
		}
	})
}

func TestNotSaved(t *testing.T) {
	w := newWorld()
	w.changed["p#a"] = true
	w.noKey["p#x"] = true
	r := w.run(t.Context(), t, nil, "a", "b: a", "x", "y: x")
	if got := statuses(r); got != "a=success b=success x=success y=success" || len(w.store) != 0 {
		t.Errorf("%s, saved %v", got, w.store)
	}
	for _, e := range r.Ended {
		if named := e.Unsaved != ""; named != (e.Task == "p#a" || e.Task == "p#b") {
			t.Errorf("%s: unsaved %q", e.Task, e.Unsaved)
		}
	}
}

// TestNotSavedWhenTheTasksBeforeItMovedOn: a result may have been made from
// something else than its key stands for.
func TestNotSavedWhenTheTasksBeforeItMovedOn(t *testing.T) {
	for name, c := range map[string]struct {
		standing orchestrator.Standing
		changed  bool   // an input of a
		grown    string // an input of all tasks
		want     string
	}{
		"as it was":       {want: "a b c"},
		"another run":     {standing: orchestrator.Standing{Foreign: true}, want: "a"},
		"another content": {standing: orchestrator.Standing{Changed: "p/dist/x"}, want: "a"},
		"another input":   {changed: true, want: "a"},
		"a new input":     {grown: "cfg/new", want: "a"},
	} {
		w := newWorld()
		w.commands["p#b"] = func(context.Context, int, io.Writer) int {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.standing["p#a"], w.changed["p#a"] = c.standing, c.changed
			w.grown = map[id.Task]string{"p#b": c.grown}
			return 0
		}
		r := w.run(t.Context(), t, nil, "a", "b: a", "c: b")
		var saved []string
		for _, s := range w.store {
			saved = append(saved, strings.TrimPrefix(string(s.task), "p#"))
		}
		slices.Sort(saved)
		if got := strings.Join(saved, " "); got != c.want || statuses(r) != "a=success b=success c=success" {
			t.Errorf("%s: saved %s, want %s; %s", name, got, c.want, statuses(r))
		}
	}
}

// TestSourcesBehindATaskWithoutCommand: such a task only hands on what it waits
// for, and whoever waits for it reads the sources there.
func TestSourcesBehindATaskWithoutCommand(t *testing.T) {
	w := newWorld()
	w.commands["p#b"] = func(context.Context, int, io.Writer) int {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changed["p#a"] = true
		return 0
	}
	groups := func(c *orchestrator.Config) { c.Tasks[1].Command, c.Tasks[2].Command = run.Command{}, run.Command{} }
	r := w.run(t.Context(), t, groups, "a", "t: a", "u: t", "b: u")
	if i := slices.IndexFunc(r.Ended, func(e orchestrator.Ended) bool { return e.Task == "p#b" }); i < 0 || !strings.Contains(r.Ended[i].Unsaved, "an input of p#a") {
		t.Errorf("%+v", r.Ended)
	}
}

// TestWhatAnotherRunMadeIsTaken: a task that another run executes is waited for.
func TestWhatAnotherRunMadeIsTaken(t *testing.T) {
	for name, c := range map[string]struct{ makes, breaks bool }{"made": {makes: true}, "failed": {}, "damaged": {makes: true, breaks: true}} {
		w := newWorld()
		w.enter = func(task *run.Task) (orchestrator.Turn, bool) {
			if task.ID != "p#b" {
				return nil, false
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.broken["p#b"] = c.breaks; c.makes {
				w.store[digest.Of([]byte("p#b "+string(digest.Of([]byte("p#a")))))] = &stored{w: w, task: "p#b", log: "their output", took: time.Hour}
			}
			return turn{}, true
		}
		r := w.run(t.Context(), t, func(c *orchestrator.Config) { c.Replay = func(*run.Task) bool { return true } }, "a", "b: a", "c: b")
		want, output := "a=success b=success c=success", ""
		if c.makes && !c.breaks {
			want, output = "a=success b=cached c=success", "their output"
		}
		if got := statuses(r); got != want || slices.Contains(w.ran, "p#b") != (want == "a=success b=success c=success") {
			t.Errorf("%s: %s, ran %v", name, got, w.ran)
		}
		started := slices.ContainsFunc(oneOf[orchestrator.Started](w), func(s orchestrator.Started) bool { return s.Task == "p#b" })
		if waited := oneOf[orchestrator.Waiting](w); len(waited) != 1 || waited[0].Task != "p#b" || started != (output == "") {
			t.Errorf("%s: told of waits %v and of the start %t", name, waited, started)
		}
		text := ""
		for _, o := range oneOf[orchestrator.Output](w) {
			text += o.Text
		}
		if text != output {
			t.Errorf("%s: output %q", name, text)
		}
		for _, e := range r.Ended {
			if e.Task == "p#b" && output != "" && (e.Attempts != 0 || e.SavedMS != time.Hour.Milliseconds()) {
				t.Errorf("%s: %+v", name, e)
			}
		}
	}
}

// TestWhoWaitsTakesNoPlace: others run meanwhile, and no more at once than may.
func TestWhoWaitsTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.blocked = map[id.Task]chan struct{}{"p#a": make(chan struct{})}
		var now, most atomic.Int32
		work := func(context.Context, int, io.Writer) int {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			return 0
		}
		w.commands["p#a"], w.commands["p#c"] = work, work
		w.commands["p#b"] = func(ctx context.Context, n int, out io.Writer) int {
			close(w.blocked["p#a"]) // a may go on, once b is done
			return work(ctx, n, out)
		}
		one := func(c *orchestrator.Config) { c.Concurrency = 1 }
		r := w.run(t.Context(), t, one, "a", "b", "c")
		if statuses(r) != "a=success b=success c=success" || most.Load() != 1 {
			t.Errorf("%s, %d at once", statuses(r), most.Load())
		}
	})
}

// TestGeneratorThatIsNotCached writes an input of a task behind it: what was
// cached for the input as it was is no hit.
func TestGeneratorThatIsNotCached(t *testing.T) {
	w := newWorld()
	uncached := func(c *orchestrator.Config) { c.Tasks[0].Cache = false }
	w.run(t.Context(), t, uncached, "gen", "a: gen", "b: a")
	if r := w.run(t.Context(), t, uncached, "gen", "a: gen", "b: a"); statuses(r) != "a=cached b=cached gen=success" {
		t.Errorf("nothing changed: %s", statuses(r))
	}
	w.changed["p#b"] = true
	if r := w.run(t.Context(), t, uncached, "gen", "a: gen", "b: a"); statuses(r) != "a=cached b=success gen=success" {
		t.Errorf("it wrote an input of b: %s", statuses(r))
	}
}

func TestDamagedHitRuns(t *testing.T) {
	w := newWorld()
	w.run(t.Context(), t, nil, "a", "b: a")
	w.broken["p#a"] = true
	r := w.run(t.Context(), t, nil, "a", "b: a")
	if got := statuses(r); got != "a=success b=cached" || len(oneOf[orchestrator.Warning](w)) != 0 {
		t.Errorf("%s %v", got, w.events)
	}
	var told []string
	for _, k := range oneOf[orchestrator.Keyed](w) {
		if k.Task == "p#a" {
			told = append(told, k.Cache+" "+k.Unrestored)
		}
	}
	if got := strings.Join(told, ", "); got != "hit , miss damaged" {
		t.Errorf("a is told as %s", got)
	}
}

func TestUploadsAreWaitedForBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		ctx, cancel := context.WithCancel(t.Context())
		w.share = func(ctx context.Context, told func(int)) {
			told(3)
			time.Sleep(2 * time.Second)
			cancel() // as Ctrl-C does
			<-ctx.Done()
		}
		r := w.run(ctx, t, func(c *orchestrator.Config) { c.Began = time.Now().Add(-time.Second) }, "a")
		if f := r.Finished; f.Status != run.Success || f.WallMS != 3000 {
			t.Errorf("%+v", f)
		}
		if up := oneOf[orchestrator.Uploading](w); len(up) != 1 || up[0].Left != 3 {
			t.Errorf("uploading %v", up)
		}
		if _, last := w.events[len(w.events)-1].(orchestrator.Finished); !last {
			t.Errorf("events %v", w.events)
		}
	})
}

func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.commands["p#a"] = func(ctx context.Context, _ int, out io.Writer) int {
			<-ctx.Done()
			time.Sleep(2 * time.Second) // until it is killed
			return 137
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		r := w.run(ctx, t, nil, "a", "b: a", "c")
		if got := statuses(r); got != "a=aborted b=aborted c=success" || r.Finished.Status != run.Aborted {
			t.Errorf("%s", got)
		}
		if took := time.Since(began); took != time.Minute+2*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

// A task that does not end, such as one whose large result is being saved, is
// left to itself, and in the books it is aborted.
func TestWhatDoesNotEndIsAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		free := make(chan struct{})
		w.commands["p#a"] = func(context.Context, int, io.Writer) int {
			<-free
			return 0
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := w.try(ctx, t, nil, "a", "b: a", "c")
		if !errs.Is(err, errs.Canceled) || statuses(r) != "a=aborted b=aborted c=success" || r.Finished.Status != run.Aborted {
			t.Errorf("%v, %s, %+v", err, statuses(r), r.Finished)
		}
		close(free)
		synctest.Wait()
	})
}

func TestStuckListenerDoesNotHoldTheAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.commands["p#a"] = func(ctx context.Context, _ int, out io.Writer) int {
			for ctx.Err() == nil {
				_, _ = out.Write(make([]byte, 100<<10))
				time.Sleep(time.Millisecond)
			}
			return 137
		}
		free := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		r := w.run(ctx, t, func(c *orchestrator.Config) {
			c.Listen = func(time.Time, orchestrator.Event) { <-free }
		}, "a")
		if r.Finished.Status != run.Aborted || time.Since(began) > time.Minute+5*time.Second {
			t.Errorf("%+v after %s", r.Finished, time.Since(began))
		}
		close(free)
		synctest.Wait()
	})
}

func TestOutputIsBatchedAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		const line = "0123456789ä\n"
		w.commands["p#a"] = func(_ context.Context, _ int, out io.Writer) int {
			for range 100 { // for a second
				fmt.Fprint(out, line)
				time.Sleep(10 * time.Millisecond)
			}
			return 0
		}
		w.commands["p#b"] = func(_ context.Context, _ int, out io.Writer) int {
			for range 100_000 {
				fmt.Fprint(out, line)
			}
			return 0
		}
		w.run(t.Context(), t, nil, "a")
		if n := len(oneOf[orchestrator.Output](w)); n < 8 || n > 12 {
			t.Errorf("%d events for a second of output", n)
		}
		w.run(t.Context(), t, nil, "b")
		if got := w.text("p#b"); got != strings.Repeat(line, 100_000) {
			t.Errorf("%d bytes seen", len(got))
		}
		for _, o := range oneOf[orchestrator.Output](w) {
			if len(o.Text) > 256<<10 || strings.Contains(o.Text, "\ufffd") {
				t.Errorf("an event of %d bytes", len(o.Text))
			}
		}
		for _, s := range w.store {
			if s.task == "p#b" && s.log != strings.Repeat(line, 100_000) {
				t.Errorf("%d bytes saved", len(s.log))
			}
		}
	})
}

func TestPersistentIsStoppedWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.commands["p#server"] = func(ctx context.Context, _ int, _ io.Writer) int {
			<-ctx.Done()
			return 143
		}
		w.commands["p#test"] = func(context.Context, int, io.Writer) int {
			time.Sleep(time.Second)
			return 0
		}
		r := w.run(t.Context(), t, func(c *orchestrator.Config) {
			c.Tasks[0].Persistent, c.Tasks[0].Cache, c.Tasks[0].Requested = true, false, false
		}, "server", "test")
		if got := statuses(r); got != "server=success test=success" {
			t.Errorf("%s", got)
		}
	})
}

func TestNestedRunIsRefused(t *testing.T) {
	_, err := orchestrator.Run(t.Context(), orchestrator.Config{Root: "/ws", Environ: []string{run.Inside + "=/ws"}})
	if !errs.Is(err, errs.FailedPrecondition) {
		t.Errorf("%v", err)
	}
}

func TestCriticalPathAndSlowest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for task, took := range map[id.Task]time.Duration{"p#a": time.Second, "p#b": 5 * time.Second, "p#c": 2 * time.Second, "p#d": 4 * time.Second} {
			w.commands[task] = func(context.Context, int, io.Writer) int {
				time.Sleep(took)
				return 0
			}
		}
		r := w.run(t.Context(), t, nil, "a", "b: a", "c: a", "d: c")
		f := r.Finished
		if want := []orchestrator.Step{{Task: "p#a", TookMS: 1000}, {Task: "p#c", TookMS: 2000}, {Task: "p#d", TookMS: 4000}}; !reflect.DeepEqual(f.CriticalPath, want) {
			t.Errorf("critical path %v", f.CriticalPath)
		}
		if f.Slowest[0].Task != "p#b" || f.WorkMS != 12_000 || f.WallMS != 7000 {
			t.Errorf("%+v", f)
		}
	})
}

func TestEventsAsJSON(t *testing.T) {
	m := lineOf(t, orchestrator.Ended{Task: "p#a", Status: run.Failed, Exit: 3})
	if m["event"] != "ended" || m["at"] != "1970-01-01T00:00:00.000Z" || m["task"] != "p#a" || m["exit"] != 3.0 || m["status"] != "failed" {
		t.Errorf("%v", m)
	}
}

// BenchmarkWarm is what a run itself costs for each of 10,000 hits.
func BenchmarkWarm(b *testing.B) {
	w := newWorld()
	var c orchestrator.Config
	for i := range 10_000 {
		t := &run.Task{ID: id.Task(fmt.Sprintf("p#%d", i)), Command: run.Command{Line: "x"}}
		t.Cache = true
		if i >= 100 {
			t.Deps = []id.Task{id.Task(fmt.Sprintf("p#%d", i-100)), id.Task(fmt.Sprintf("p#%d", i-99))}[:1+i%2]
		}
		c.Tasks = append(c.Tasks, t)
	}
	c.Keys, c.Cache, c.Worker, c.Continue, c.Concurrency, c.Lookups, c.Root = w, w, w, "never", 2, 4, "/ws"
	for b.Loop() {
		if _, err := orchestrator.Run(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/10_000, "µs/task")
}

// TestSlowListenerHoldsTheWriter: what a listener has not heard is bounded, the
// run goes on meanwhile, and nothing is lost.
func TestSlowListenerHoldsTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		const piece, pieces = 32 << 10, 1200 // one line of 39 MB
		var taken atomic.Int64
		w.commands["p#a"] = func(_ context.Context, _ int, out io.Writer) int {
			for range pieces {
				n, _ := out.Write(bytes.Repeat([]byte("x"), piece))
				taken.Add(int64(n))
			}
			return 0
		}
		ended := make(chan struct{})
		w.commands["p#b"] = func(context.Context, int, io.Writer) int {
			close(ended)
			return 0
		}
		var heard, held int64
		w.run(t.Context(), t, func(c *orchestrator.Config) {
			c.Listen = func(_ time.Time, e orchestrator.Event) {
				o, ok := e.(orchestrator.Output)
				if !ok {
					return
				}
				if heard == 0 {
					time.Sleep(time.Minute)
				}
				held = max(held, taken.Load()-heard)
				heard += int64(len(o.Text))
			}
		}, "a", "b")
		<-ended
		if heard != piece*pieces {
			t.Errorf("%d bytes heard of %d", heard, piece*pieces)
		}
		if held > 20<<20 {
			t.Errorf("%d bytes waited for the listener", held)
		}
	})
}

// TestLongReplayIsItsEnd: of a stored output that is very long the end is shown.
func TestLongReplayIsItsEnd(t *testing.T) {
	const most = 4 << 20
	for _, size := range []int{most - 1, most, most + 1, 3*most + 12345} {
		long := make([]byte, size)
		for i := range long {
			long[i] = byte('a' + i%23)
		}
		w := newWorld()
		w.commands["p#a"] = func(_ context.Context, _ int, out io.Writer) int {
			_, _ = out.Write(long)
			return 0
		}
		w.run(t.Context(), t, nil, "a")
		w.run(t.Context(), t, nil, "a")
		want := string(long)
		if size > most {
			want = "[the beginning is left out]\n" + want[size-most:]
		}
		if got := w.text("p#a"); got != want {
			t.Errorf("of %d bytes %d are seen, not %d, or not the same", size, len(got), len(want))
		}
	}
}
