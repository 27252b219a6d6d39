//go:build linux

package pid1_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest"
)

// eventually polls a condition until the test's limit.
func (b *box) eventually(what string, ok func() bool) {
	b.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-b.ctx.Done():
			b.t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

func (b *box) states(c *guest.Client) map[int]string {
	b.t.Helper()
	all, err := c.Ps(b.ctx)
	check(b.t, err)
	m := map[int]string{}
	for _, p := range all {
		if p.PID != os.Getpid() && p.State != "Z" {
			m[p.PID] = p.State
		}
	}
	return m
}

// still: stopped, or in a wait of the kernel's that ends in the stop.
func still(state string) bool { return state == "T" || state == "D" }

const forest = `
cd "$1"
(while :; do echo x >> a; done) &
(while :; do (:) ; done) &
setsid sh -c 'while :; do echo x >> b; sleep 0.001; done' &
sleep 1000 & stopped=$!
kill -STOP $stopped; echo $stopped > stopped
wait`

func TestFreezeStopsEverythingAndThawOnlyWhatItStopped(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	dir := t.TempDir()
	_, err := c.Start(b.ctx, guest.StartArgs{Command: guest.Command{Argv: []string{"/bin/sh", "-c", forest, "sh", dir}}})
	check(t, err)
	size := func(name string) int64 {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	b.eventually("all write", func() bool { return size("a") > 0 && size("b") > 0 && size("stopped") > 1 })
	text, err := os.ReadFile(filepath.Join(dir, "stopped"))
	check(t, err)
	stopped, err := strconv.Atoi(strings.TrimSpace(string(text)))
	check(t, err)
	b.eventually("the sleeper is stopped", func() bool { return b.states(c)[stopped] == "T" })

	for range 20 {
		r, err := c.Freeze(b.ctx, guest.FreezeArgs{Capture: true})
		check(t, err)
		if r.Already != 1 || r.Stopped < 3 {
			t.Fatalf("frozen %+v", r)
		}
		before := [2]int64{size("a"), size("b")}
		for pid, state := range b.states(c) {
			if !still(state) {
				t.Fatalf("process %d is in state %s while frozen", pid, state)
			}
		}
		if after := [2]int64{size("a"), size("b")}; after != before {
			t.Fatalf("files grew while frozen: %v, %v", before, after)
		}
		check(t, c.Thaw(b.ctx))
		b.eventually("all go on", func() bool { return size("a") > before[0] && size("b") > before[1] })
		if s := b.states(c)[stopped]; s != "T" {
			t.Fatalf("thaw woke a process that the user had stopped (%s)", s)
		}
	}
}

func TestFrozenSandboxStartsNothingAndAnswersAfterThaw(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	x, err := c.Exec(b.ctx, guest.ExecArgs{ID: "cat", Command: guest.Command{Argv: []string{"/bin/cat"}}, Stdin: true})
	check(t, err)
	_, err = c.Freeze(b.ctx, guest.FreezeArgs{Capture: true})
	check(t, err)
	type wrote struct {
		n   uint64
		err error
	}
	done := make(chan wrote, 1)
	b.group.Go("writer", func(ctx ctxT) error {
		n, err := c.WriteStdin(ctx, "cat", -1, []byte("hello\n"))
		done <- wrote{n, err}
		return nil
	})
	if r, err := c.Freeze(b.ctx, guest.FreezeArgs{Capture: true}); err != nil || r.Stopped != 1 {
		t.Fatalf("freezing again: %+v, %v", r, err)
	}
	select {
	case w := <-done:
		t.Fatalf("input was taken while frozen: %+v", w)
	default:
	}
	check(t, c.Thaw(b.ctx))
	check(t, c.Thaw(b.ctx))
	if w := <-done; w.err != nil || w.n != 6 {
		t.Fatalf("input after the thaw: %+v", w)
	}
	out, err := x.Next()
	check(t, err)
	if string(out.Data) != "hello\n" {
		t.Fatalf("cat said %q", out.Data)
	}
}

func TestFreezeWithoutCaptureThawsByItself(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	pid, err := c.Start(b.ctx, guest.StartArgs{Command: sh("sleep 1000")})
	check(t, err)
	_, err = c.Freeze(b.ctx, guest.FreezeArgs{ThawAfterMillis: 50})
	check(t, err)
	b.eventually("it thaws", func() bool { s := b.states(c)[pid]; return !still(s) && s != "" })

	// The timer of a freeze does not outlive a freeze for a capture.
	_, err = c.Freeze(b.ctx, guest.FreezeArgs{ThawAfterMillis: 50})
	check(t, err)
	_, err = c.Freeze(b.ctx, guest.FreezeArgs{Capture: true})
	check(t, err)
	timer := time.NewTimer(200 * time.Millisecond)
	defer timer.Stop()
	<-timer.C
	if s := b.states(c)[pid]; !still(s) {
		t.Fatalf("a capture's freeze ended by itself: %s", s)
	}
	check(t, c.Thaw(b.ctx))
}

// A shell with job control must not learn that its job was stopped: it would
// take the terminal away from it.
func TestFreezeIsNotSeenByJobControl(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	x, err := c.Exec(b.ctx, guest.ExecArgs{
		ID: "shell", Command: guest.Command{Argv: []string{"/bin/bash", "--norc", "-i"}, Env: []string{"PS1=ready> "}}, TTY: true, Cols: 200, Rows: 50,
	})
	check(t, err)
	term := &terminal{t: t, x: x}
	term.until("ready> ")
	_, err = c.WriteStdin(b.ctx, "shell", -1, []byte("/bin/cat\n"))
	check(t, err)
	// What is typed before the shell has handed the terminal over is lost.
	b.eventually("cat runs", func() bool {
		all, err := c.Ps(b.ctx)
		check(t, err)
		return slices.ContainsFunc(all, func(p guest.Process) bool { return len(p.Argv) == 1 && p.Argv[0] == "/bin/cat" })
	})
	_, err = c.WriteStdin(b.ctx, "shell", -1, []byte("one\n"))
	check(t, err)
	term.until("one\r\none\r\n")
	for range 10 {
		_, err = c.Freeze(b.ctx, guest.FreezeArgs{Capture: true})
		check(t, err)
		check(t, c.Thaw(b.ctx))
	}
	_, err = c.WriteStdin(b.ctx, "shell", -1, []byte("two\n"))
	check(t, err)
	term.until("two\r\ntwo\r\n")
	check(t, c.CloseStdin(b.ctx, "shell"))
	_, err = c.WriteStdin(b.ctx, "shell", -1, []byte("exit 7\n"))
	check(t, err)
	term.until("exit")
	for {
		if _, err := x.Next(); err != nil {
			break
		}
	}
	if strings.Contains(term.all, "Stopped") {
		t.Fatalf("the shell saw its job stopped: %q", term.all)
	}
	if status, ok := x.Exit(); !ok || status.Code != 7 {
		t.Fatalf("shell ended with %+v", status)
	}
}

// terminal reads what a terminal shows.
type terminal struct {
	t    *testing.T
	x    *guest.Attachment
	all  string
	seen int
}

// until reads until text came, behind what was looked for before.
func (m *terminal) until(text string) {
	m.t.Helper()
	for !strings.Contains(m.all[m.seen:], text) {
		out, err := m.x.Next()
		if err != nil {
			m.t.Fatalf("%v while waiting for %q; the terminal shows %q", err, text, m.all)
		}
		m.all += string(out.Data)
	}
	m.seen += strings.Index(m.all[m.seen:], text) + len(text)
}

func TestTerminal(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	x, err := c.Exec(b.ctx, guest.ExecArgs{
		ID: "t", TTY: true, Cols: 91, Rows: 17,
		Command: sh(`trap 'stty size; echo resized' WINCH; trap 'echo interrupted; exit 5' INT; tty; stty size; echo $TERM; while :; do sleep 0.02; done`),
	})
	check(t, err)
	term := &terminal{t: t, x: x}
	term.until("/dev/pts/")
	term.until("17 91")
	term.until("xterm-256color")
	check(t, c.Resize(b.ctx, "t", 100, 30))
	term.until("30 100")
	term.until("resized")
	_, err = c.WriteStdin(b.ctx, "t", -1, []byte{3})
	check(t, err)
	term.until("interrupted")
	for {
		if _, err := x.Next(); err != nil {
			break
		}
	}
	if status, _ := x.Exit(); status.Code != 5 {
		t.Fatalf("ended with %+v", status)
	}
	if err := c.Resize(b.ctx, "t", 0, 3); !errs.Is(err, errs.InvalidArgument) {
		t.Fatalf("resize to nothing: %v", err)
	}
}

func TestSignalReachesTheForegroundGroup(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	x, err := c.Exec(b.ctx, guest.ExecArgs{ID: "g", Command: sh(`sleep 1000 & echo $!; wait`)})
	check(t, err)
	out, err := x.Next()
	check(t, err)
	child, err := strconv.Atoi(strings.TrimSpace(string(out.Data)))
	check(t, err)
	check(t, c.Signal(b.ctx, "g", "TERM"))
	if _, err := x.CopyTo(os.Stderr, os.Stderr); err != nil {
		t.Fatal(err)
	}
	b.eventually("the group's other process is gone", func() bool { return b.states(c)[child] == "" })
	if err := c.Signal(b.ctx, "g", "TERM"); !errs.Is(err, errs.FailedPrecondition) {
		t.Fatalf("signal to an ended program: %v", err)
	}
	if err := c.Signal(b.ctx, "g", "NOPE"); !errs.Is(err, errs.InvalidArgument) {
		t.Fatalf("unknown signal: %v", err)
	}
	if syscall.Kill(child, 0) == nil && b.states(c)[child] != "" {
		t.Fatal("still alive")
	}
}
