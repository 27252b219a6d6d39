package fork_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	broodv1 "brood/api/brood/v1"
	"brood/client"
	"brood/test/live"
)

// startExec starts a command and takes the beginning of its output.
func startExec(t *testing.T, d *live.Daemon, sandbox string, argv ...string) *client.Execution {
	t.Helper()
	e, err := d.Client.StartExec(within(t), sandbox, client.ExecOptions{Argv: argv})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	_, _ = e.Wait(ctx, client.Streams{Out: stopper(cancel)}) // interrupted by the first output
	return e
}

// stopper ends a context with the first write.
type stopper context.CancelFunc

func (s stopper) Write(p []byte) (int, error) { s(); return len(p), nil }

func execOf(t *testing.T, d *live.Daemon, sandbox, id string) *broodv1.ExecInfo {
	t.Helper()
	all, err := d.Client.ListExecs(within(t), sandbox)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		if x.GetExecId() == id {
			return x
		}
	}
	t.Fatalf("no exec %s in %v", id, all)
	return nil
}

// A command whose client is gone ends, also one that writes without end, and
// in a fork that was made meanwhile it goes on. One that was started to be
// left alone stays, is listed, and can be ended.
func TestExecWithoutItsClientEnds(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "sleep", "1000")
	writer := startExec(t, d, "src", "yes", "to nobody")
	quiet := startExec(t, d, "src", "sh", "-c", "echo here; exec sleep 1234")
	left := strings.TrimSpace(d.Brood(0, "sb", "exec", "-d", "src", "--", "sleep", "2345"))
	writer.Close()
	quiet.Close()
	d.Brood(0, "sb", "checkpoint", "src", "base")
	d.Brood(0, "sb", "fork", "base", "copy")
	for _, e := range []*client.Execution{writer, quiet} {
		live.Eventually(t, "the exec ends", func() bool { return execOf(t, d, "src", e.ID()).GetExit() != nil })
		if sig := execOf(t, d, "src", e.ID()).GetExit().GetSignal(); sig != 1 {
			t.Errorf("it was ended by signal %d", sig)
		}
	}
	if out := d.Brood(0, "sb", "execs", "src"); !strings.Contains(out, left) || !strings.Contains(out, "runs") {
		t.Errorf("listed: %s", out)
	}
	if out := d.Brood(0, "sb", "ps", "copy"); !strings.Contains(out, "sleep 1234") || !strings.Contains(out, "yes") {
		t.Errorf("in the fork runs: %s", out)
	}
	d.Brood(0, "sb", "kill", "src", left, "-s", "KILL")
	live.Eventually(t, "the killed one ends", func() bool { return execOf(t, d, "src", left).GetExit().GetSignal() == 9 })
}

// An exec that is watched survives its daemon when its client comes back,
// longer than one that nobody watches would.
func TestExecSurvivesItsDaemon(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "sleep", "1000")
	e := startExec(t, d, "src", "sh", "-c", "echo here; sleep 13; echo after; exit 4")
	d.Kill()
	d.Run()
	var out bytes.Buffer
	exit, err := d.Client.AttachExec("src", e.ID(), uint64(len("here\n")), 0).Wait(within(t), client.Streams{Out: &out})
	if err != nil || exit.GetCode() != 4 || out.String() != "after\n" {
		t.Errorf("%q, %v, %v", &out, exit, err)
	}
}

// What was left to run is seen later from the command line, from its beginning
// to its end, also by whoever comes after it.
func TestAttachShowsWhatWasLeftToRun(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "sleep", "1000")
	id := strings.TrimSpace(d.Brood(0, "sb", "exec", "-d", "src", "--", "sh", "-c", "echo first; while [ ! -e /go ]; do sleep 0.05; done; echo last; exit 3"))
	d.Output("src", "touch", "/go")
	for range 2 {
		if out := d.Brood(3, "sb", "attach", "src", id); out != "first\nlast\n" {
			t.Errorf("%q", out)
		}
	}
	d.Brood(125, "sb", "attach", "src", "x-none")
}
