//go:build linux

package pid1_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"brood/internal/sandbox/guest"
	"brood/internal/sandbox/guest/pid1"
)

// grace is short, so that the tests are.
const grace = 300 * time.Millisecond

func hangUpBox(t *testing.T) *box {
	return newBox(t, func(c *pid1.Config) { c.HangUpGrace = grace })
}

// started runs a script that is to be hung up, and returns its look and pid.
func (b *box) started(c *guest.Client, id, script string) *guest.Attachment {
	b.t.Helper()
	x, err := c.Exec(b.ctx, guest.ExecArgs{ID: id, HangUp: true, Command: sh(script)})
	check(b.t, err)
	return x
}

// after lets a time pass.
func (b *box) after(d time.Duration) {
	ctx, cancel := context.WithTimeout(b.ctx, d)
	defer cancel()
	<-ctx.Done()
}

func (b *box) exit(c *guest.Client, id string) *guest.ExitStatus {
	b.t.Helper()
	all, err := c.ListExecs(b.ctx)
	check(b.t, err)
	for _, x := range all {
		if x.ID == id {
			return x.Exit
		}
	}
	b.t.Fatalf("no exec %s in %+v", id, all)
	return nil
}

func (b *box) runs(c *guest.Client, pid int) bool { return b.states(c)[pid] != "" }

// A program whose host went away is told, as by a terminal that is closed;
// its exec is over although nobody takes what it wrote.
func TestForsakenExecIsHungUp(t *testing.T) {
	b := hangUpBox(t)
	c := b.connect()
	mark := filepath.Join(b.root, "told")
	x := b.started(c, "a", "trap 'echo hup > "+mark+"; exit 7' HUP; while :; do echo output output output output; done")
	x.Close()
	b.eventually("the exec ends", func() bool { return b.exit(c, "a") != nil })
	if e := b.exit(c, "a"); e.Code != 7 {
		t.Errorf("it ended with %+v", e)
	}
	if said, _ := os.ReadFile(mark); string(said) != "hup\n" {
		t.Errorf("it was told %q", said)
	}
}

// What does not care is killed, with its group, also when the group's first
// process has ended by then.
func TestForsakenExecThatIgnoresHangUpIsKilled(t *testing.T) {
	b := hangUpBox(t)
	c := b.connect()
	pids := filepath.Join(b.root, "pids")
	deaf := b.started(c, "deaf", "trap '' HUP; yes & echo $! > "+pids+"; wait")
	orphan := b.started(c, "orphan", "(trap '' HUP; exec sleep 1000) & echo $! > "+pids+"2; wait")
	running := map[string]int{} // by the file that says so
	b.eventually("both run", func() bool {
		for _, file := range []string{pids, pids + "2"} {
			text, _ := os.ReadFile(file) // may be there and not written yet
			running[file], _ = strconv.Atoi(strings.TrimSpace(string(text)))
			if running[file] == 0 {
				return false
			}
		}
		return true
	})
	deaf.Close()
	orphan.Close()
	for file, pid := range running {
		b.eventually("process of "+file+" is gone", func() bool { return !b.runs(c, pid) })
	}
	b.eventually("the exec ends", func() bool { return b.exit(c, "deaf") != nil })
	if e := b.exit(c, "deaf"); e.Signal != "SIGKILL" {
		t.Errorf("it ended with %+v", e)
	}
}

// Whoever attaches again in time keeps the program; one that is started to be
// left alone needs nobody.
func TestExecsThatAreNotHungUp(t *testing.T) {
	b := hangUpBox(t)
	c := b.connect()
	b.started(c, "back", "sleep 1000").Close()
	back, err := c.Attach(b.ctx, guest.AttachArgs{ID: "back"})
	check(t, err)
	defer back.Close()
	alone, err := c.Exec(b.ctx, guest.ExecArgs{ID: "alone", Command: sh("sleep 1000")})
	check(t, err)
	alone.Close()
	b.after(3 * grace)
	for _, id := range []string{"back", "alone"} {
		if e := b.exit(c, id); e != nil {
			t.Errorf("%s ended with %+v", id, e)
		}
	}
}

// The grace runs while somebody could attach: not between a daemon's end and
// the next one.
func TestNoGraceRunsWithoutAHost(t *testing.T) {
	b := hangUpBox(t)
	c := b.connect()
	x := b.started(c, "a", "sleep 1000")
	check(t, c.Close())
	b.after(3 * grace)
	c = b.connect()
	if !b.runs(c, x.PID) {
		t.Fatal("it was hung up while no daemon was there")
	}
	again, err := c.Attach(b.ctx, guest.AttachArgs{ID: "a"})
	check(t, err)
	again.Close()
	b.eventually("the exec ends", func() bool { return b.exit(c, "a") != nil })
}

// In a fork the exec is the source's, and its program goes on.
func TestForkedExecIsNotHungUp(t *testing.T) {
	b := hangUpBox(t)
	c := b.connect()
	x := b.started(c, "a", "sleep 1000")
	x.Close()
	_, err := c.Freeze(b.ctx, guest.FreezeArgs{Capture: true})
	check(t, err)
	b.after(3 * grace)
	_, err = c.Identity(b.ctx, forkIdentity())
	check(t, err)
	check(t, c.Thaw(b.ctx))
	b.after(3 * grace)
	if !b.runs(c, x.PID) {
		t.Error("it was hung up")
	}
}

// What nobody takes holds the program, for as long as it may come.
func TestUntakenOutputHoldsTheProgram(t *testing.T) {
	b := newBox(t, func(c *pid1.Config) { c.HangUpGrace = time.Hour })
	c := b.connect()
	b.started(c, "a", "exec yes").Close()
	wrote := func() uint64 {
		all, err := c.ListExecs(b.ctx)
		check(t, err)
		return all[0].Stdout
	}
	b.eventually("the buffer is full", func() bool { return wrote() >= 700<<10 })
	b.after(grace)
	if n := wrote(); n > 1<<20 {
		t.Errorf("%d bytes were taken from it", n)
	}
}
