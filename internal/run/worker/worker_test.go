package worker_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/worker"
)

func newWorker(t *testing.T, c worker.Config) *worker.Worker {
	t.Helper()
	w, err := worker.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return w
}

// lineOrder is an order for a line of the shell.
func lineOrder(root, line string, environ ...string) run.Order {
	return run.Order{
		Task: &run.Task{
			ID: id.TaskOf("a", "build"), Project: "a", Name: "build", Dir: ".",
			Command: run.Command{Line: line},
		},
		Attempt: 1, Root: root,
		Environ: append([]string{"PATH=" + os.Getenv("PATH")}, environ...),
	}
}

// eventually polls, since a process can only be asked whether it is there.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never happened: %s", what)
		}
	}
}

func pidIn(t *testing.T, file string) int {
	t.Helper()
	var pid int
	eventually(t, "a pid in "+file, func() bool {
		b, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return pid > 0
	})
	return pid
}

// alive says whether a process runs: one that ended and was not waited for
// does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return os.IsNotExist(err) && syscall.Kill(pid, 0) == nil
	}
	_, after, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(after, "Z")
}

func TestOutputAndExit(t *testing.T) {
	w := newWorker(t, worker.Config{})
	for _, c := range []struct {
		line, out, signal string
		exit              int
	}{
		{line: "echo out; echo err >&2", out: "out\nerr\n"},
		{line: "exit 7", exit: 7},
		{line: "kill -SEGV $$", exit: 128 + 11, signal: "SIGSEGV"},
		{line: "cat; echo done", out: "done\n"}, // its input is empty
		{line: "no-such-program-here 2>/dev/null", exit: 127},
	} {
		var out bytes.Buffer
		r := w.Execute(t.Context(), lineOrder(t.TempDir(), c.line), &out)
		if r.Err != nil || r.Exit != c.exit || r.Signal != c.signal || out.String() != c.out {
			t.Errorf("%q gave %d %q %v and printed %q", c.line, r.Exit, r.Signal, r.Err, out.String())
		}
		if r.OK() != (c.exit == 0) || r.Ended.Before(r.Began) {
			t.Errorf("%q: OK %v, from %v to %v", c.line, r.OK(), r.Began, r.Ended)
		}
	}
}

func TestGroupWithoutCommand(t *testing.T) {
	w := newWorker(t, worker.Config{})
	o := lineOrder(t.TempDir(), "")
	if r := w.Execute(t.Context(), o, new(bytes.Buffer)); !r.OK() {
		t.Errorf("%+v", r)
	}
}

func TestMissingFolderIsTheMachinesFault(t *testing.T) {
	w := newWorker(t, worker.Config{})
	r := w.Execute(t.Context(), lineOrder(filepath.Join(t.TempDir(), "gone"), "true"), new(bytes.Buffer))
	if r.Err == nil || r.OK() {
		t.Errorf("%+v", r)
	}
}

// Also of one that came as a dependency, when they are in its key.
func TestArgumentsReachTheTaskAsTheyAre(t *testing.T) {
	w := newWorker(t, worker.Config{})
	for _, requested := range []bool{true, false} {
		o := lineOrder(t.TempDir(), `printf '[%s]' x`)
		o.Task.Requested = requested
		o.Task.Args = []string{"", "a b", `'"$HOME`, "`id`", "*", "é\n!"}
		var out bytes.Buffer
		w.Execute(t.Context(), o, &out)
		if want := "[x][][a b]['\"$HOME][`id`][*][é\n!]"; out.String() != want {
			t.Errorf("requested %v: %q", requested, out.String())
		}
	}
}

func TestAbortLeavesNothing(t *testing.T) {
	for _, c := range []struct{ name, line string }{
		{"plain", `echo $$ > main; sleep 60 & echo $! > child; wait`},
		{"deaf", `trap '' TERM; echo $$ > main; (trap '' TERM; while :; do sleep 1; done) & echo $! > child; wait; wait; while :; do sleep 1; done`},
		{"grandchild", `echo $$ > main; sh -c 'sh -c "echo \$\$ > child; sleep 60"; true'; true`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorker(t, worker.Config{Sampling: c.name == "plain"})
			dir := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stop := context.AfterFunc(t.Context(), cancel)
			defer stop()
			done := make(chan run.Result, 1)
			var wg sync.WaitGroup
			wg.Go(func() { done <- w.Execute(ctx, lineOrder(dir, c.line), new(bytes.Buffer)) })
			pids := []int{pidIn(t, filepath.Join(dir, "main")), pidIn(t, filepath.Join(dir, "child"))}
			cancel()
			r := <-done
			wg.Wait()
			if r.OK() || r.TimedOut || r.Err != nil {
				t.Errorf("%+v", r)
			}
			for _, pid := range pids {
				if alive(pid) {
					t.Errorf("process %d is left", pid)
				}
			}
		})
	}
}

func TestTimeout(t *testing.T) {
	w := newWorker(t, worker.Config{})
	o := lineOrder(t.TempDir(), "echo begun; sleep 60")
	o.Task.Timeout = 50 * time.Millisecond
	var out bytes.Buffer
	r := w.Execute(t.Context(), o, &out)
	if !r.TimedOut || r.OK() || r.Signal != "SIGTERM" || r.Err != nil {
		t.Errorf("%+v", r)
	}
}

func TestTaskEndsWithItsOwnProcess(t *testing.T) {
	w := newWorker(t, worker.Config{})
	dir := t.TempDir()
	var out bytes.Buffer
	r := w.Execute(t.Context(), lineOrder(dir, `(echo late; sleep 60) & echo $! > child; echo done`), &out)
	if !r.OK() {
		t.Errorf("%+v", r)
	}
	if s := out.String(); !strings.Contains(s, "done\n") || !strings.Contains(s, "late\n") || !strings.Contains(s, "output ends here") {
		t.Errorf("output %q", s)
	}
	pid := pidIn(t, filepath.Join(dir, "child"))
	eventually(t, "the end of what was left behind", func() bool { return !alive(pid) })
}

func TestOutputOfAShortAfterlifeIsWhole(t *testing.T) {
	w := newWorker(t, worker.Config{})
	var out bytes.Buffer
	r := w.Execute(t.Context(), lineOrder(t.TempDir(), `(sleep 0.05; echo last) & echo first`), &out)
	if !r.OK() || out.String() != "first\nlast\n" {
		t.Errorf("%+v, output %q", r, out.String())
	}
}

// slow takes its time for everything that is written to it.
type slow struct {
	bytes.Buffer
	tick <-chan time.Time
}

func (s *slow) Write(p []byte) (int, error) {
	<-s.tick
	return s.Buffer.Write(p)
}

// TestASlowReaderLosesNothing: what was written before the end is output,
// however late it is read.
func TestASlowReaderLosesNothing(t *testing.T) {
	w := newWorker(t, worker.Config{})
	tick := time.NewTicker(350 * time.Millisecond)
	defer tick.Stop()
	out := &slow{tick: tick.C}
	r := w.Execute(t.Context(), lineOrder(t.TempDir(), `head -c 90000 /dev/zero | tr '\0' x; echo; echo last`), out)
	if !r.OK() || out.Len() != 90006 || !strings.HasSuffix(out.String(), "x\nlast\n") {
		t.Errorf("%+v, %d bytes", r, out.Len())
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestOutputThatCannotBeWritten(t *testing.T) {
	w := newWorker(t, worker.Config{})
	dir := t.TempDir()
	r := w.Execute(t.Context(), lineOrder(dir, `yes | head -c 300000; touch finished`), failing{})
	if r.Err == nil || r.Exit != 0 {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(filepath.Join(dir, "finished")); err != nil {
		t.Error("the task was held up by its output")
	}
}

func TestClosedWorker(t *testing.T) {
	w, err := worker.New(worker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if r := w.Execute(t.Context(), lineOrder(t.TempDir(), "true"), new(bytes.Buffer)); r.Err == nil {
		t.Error("a closed worker executed")
	}
}

func TestManyAtOnce(t *testing.T) {
	w := newWorker(t, worker.Config{})
	var wg sync.WaitGroup
	for i := range 24 {
		dir := t.TempDir()
		wg.Go(func() {
			var out bytes.Buffer
			r := w.Execute(t.Context(), lineOrder(dir, "echo "+strconv.Itoa(i)+"; exit "+strconv.Itoa(i%3)), &out)
			if r.Exit != i%3 || out.String() != strconv.Itoa(i)+"\n" {
				t.Errorf("%d: %+v %q", i, r, out.String())
			}
		})
	}
	wg.Wait()
}

// scriptOrder is an order for a script of a package.json that belongs to no
// package manager.
func scriptOrder(t *testing.T, manifest, name string) run.Order {
	t.Helper()
	o := lineOrder(t.TempDir(), "")
	o.Task.Command = run.Command{Script: name}
	if err := os.WriteFile(filepath.Join(o.Root, "package.json"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestPreAndPostScripts(t *testing.T) {
	w := newWorker(t, worker.Config{})
	for _, c := range []struct {
		scripts, out string
		exit         int
	}{
		{`{"prebuild":"echo 1","build":"echo 2","postbuild":"echo 3"}`, "1\n2\n3\n", 0},
		{`{"prebuild":"echo 1; exit 4","build":"echo 2"}`, "1\n", 4},
		{`{"build":"echo 2; exit 5","postbuild":"echo 3"}`, "2\n", 5},
	} {
		var out bytes.Buffer
		r := w.Execute(t.Context(), scriptOrder(t, `{"scripts":`+c.scripts+`}`, "build"), &out)
		if r.Err != nil || r.Exit != c.exit || out.String() != c.out {
			t.Errorf("%s: %+v %q", c.scripts, r, out.String())
		}
	}
	if r := w.Execute(t.Context(), scriptOrder(t, `{}`, "build"), new(bytes.Buffer)); !errs.Is(r.Err, errs.NotFound) {
		t.Errorf("no such script: %+v", r)
	}
}

// TestAServerOfAPreScriptLivesAsLongAsTheTask: as with the package managers.
func TestAServerOfAPreScriptLivesAsLongAsTheTask(t *testing.T) {
	w := newWorker(t, worker.Config{})
	o := scriptOrder(t, `{"scripts":{"pretest":"sleep 60 & echo $! > server","test":"kill -0 $(cat server) && echo alive"}}`, "test")
	var out bytes.Buffer
	r := w.Execute(t.Context(), o, &out)
	if !r.OK() || !strings.HasPrefix(out.String(), "alive\n") {
		t.Errorf("%+v %q", r, out.String())
	}
	pid := pidIn(t, filepath.Join(o.Root, "server"))
	eventually(t, "the server's end", func() bool { return !alive(pid) })
}

// TestAbortBetweenSteps: the step after the one that was stopped does not run.
func TestAbortBetweenSteps(t *testing.T) {
	w := newWorker(t, worker.Config{})
	o := scriptOrder(t, `{"scripts":{"prebuild":"trap 'exit 0' TERM; echo $$ > main; sleep 60 & wait","build":"touch ran"}}`, "build")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan run.Result, 1)
	var wg sync.WaitGroup
	wg.Go(func() { done <- w.Execute(ctx, o, new(bytes.Buffer)) })
	pidIn(t, filepath.Join(o.Root, "main"))
	cancel()
	r := <-done
	wg.Wait()
	if _, err := os.Stat(filepath.Join(o.Root, "ran")); err == nil || r.OK() {
		t.Errorf("%+v: the next step ran: %v", r, err == nil)
	}
}

// TestAbortEndsWhatLeftTheGroup: where there are cgroups nothing escapes.
func TestAbortEndsWhatLeftTheGroup(t *testing.T) {
	w := newWorker(t, worker.Config{})
	if r := w.Execute(t.Context(), lineOrder(t.TempDir(), "true"), new(bytes.Buffer)); r.Usage.Sampled {
		t.Skip("SKIPPED: this process may not make cgroups here")
	}
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan run.Result, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		done <- w.Execute(ctx, lineOrder(dir, `setsid sh -c 'echo $$ > child; trap "" TERM; while :; do sleep 1; done' & sleep 60`), new(bytes.Buffer))
	})
	pid := pidIn(t, filepath.Join(dir, "child"))
	cancel()
	<-done
	wg.Wait()
	if alive(pid) {
		t.Errorf("process %d is left", pid)
	}
}

func TestSecretsAreMaskedAndIsolated(t *testing.T) {
	w := newWorker(t, worker.Config{Credentials: []string{"MY_CACHE"}})
	o := lineOrder(t.TempDir(), `printf 'hun'; sleep 0.02; printf 'ter22 and %s' "$MY_CACHE$BROOD_SECRET$TURBO_TOKEN-"; env | grep -c hunter22`,
		"API_TOKEN=hunter22", "MY_CACHE=a", "BROOD_SECRET=b", "TURBO_TOKEN=c")
	o.Globals.EnvMode = "loose"
	var out bytes.Buffer
	if r := w.Execute(t.Context(), o, &out); !r.OK() {
		t.Errorf("%+v", r)
	}
	if out.String() != "*** and -1\n" {
		t.Errorf("%q", out.String())
	}
}

// TestNothingIsLeftWhenAnAttemptIsOver: the next attempt, or another run, would
// meet it at the same files.
func TestNothingIsLeftWhenAnAttemptIsOver(t *testing.T) {
	w := newWorker(t, worker.Config{})
	for _, exit := range []string{"0", "1"} {
		dir := t.TempDir()
		r := w.Execute(t.Context(), lineOrder(dir, `(trap "" TERM; echo >trapped; while :; do sleep 0.01; done) & echo $! >child; until test -e trapped; do sleep 0.01; done; exit `+exit), io.Discard)
		if r.Err != nil || strconv.Itoa(r.Exit) != exit || r.Ended.Sub(r.Began) > 2*time.Second {
			t.Errorf("%+v", r)
		}
		if pid := pidIn(t, filepath.Join(dir, "child")); alive(pid) {
			t.Errorf("exit %s: a process that ignores SIGTERM goes on", exit)
		}
	}
}
