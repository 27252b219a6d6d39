package fork_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
	"brood/internal/payload"
	"brood/internal/sandbox"
	"brood/internal/sandbox/driver/fake"
	"brood/internal/sandbox/driver/gvisor"
	"brood/test/live"
)

// failingRestore names the restore of a daemon's life that fails.
const failingRestore = "BROOD_TEST_FAIL_RESTORE"

// failingDriver is gVisor with one restore that fails.
func failingDriver(h *home.Home) (sandbox.Driver, error) {
	rt, _, err := payload.InstallRuntime(h)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(os.Getenv(failingRestore))
	if err != nil {
		return nil, err
	}
	d := gvisor.New(gvisor.Params{Home: h, Runtime: rt, Path: func(rt id.Runtime) string { return payload.RuntimePath(h, rt) }})
	fault := fake.Nth(n, errs.New(errs.Internal, "the runtime was struck by lightning"))
	return fake.Faulty(d, fake.Hooks{fake.OpRestore: fault}, nil), nil
}

func warm(t testing.TB, d *live.Daemon) {
	t.Helper()
	create(t, d, "src", "sleep", "1000")
	if _, err := d.Client.CreateCheckpoint(within(t), "src", "base", client.CheckpointOptions{}); err != nil {
		t.Fatal(err)
	}
}

// One fork of 32 fails: the others are ready, and its item says why.
func TestOneOf32Fails(t *testing.T) {
	d := live.Start(t, live.Options{Driver: "failing restore", Env: []string{failingRestore + "=17"}})
	warm(t, d)
	b, err := d.Client.ForkMany(within(t), "base", 32, &client.ForkManyOptions{NamePrefix: "f"})
	if err != nil {
		t.Fatal(err)
	}
	events := checkedEvents(t, b)
	done := events[len(events)-1].Done
	if done.GetOk() != 31 || done.GetFailed() != 1 || done.GetPerHost()["local"] != 31 || done.GetPeakParallel()["local"] > 4 {
		t.Errorf("summary: %v", done)
	}
	for _, ev := range events {
		if i := ev.Item; i != nil && i.GetError() != "" {
			if i.GetErrorCode() != "fork_failed" || !strings.Contains(i.GetError(), "lightning") || i.GetSpace() != "" {
				t.Errorf("the failed item: %v", i)
			}
			if _, err := d.Client.GetSandbox(within(t), i.GetName()); !errs.Is(err, errs.NotFound) {
				t.Errorf("a failed fork is there: %v", err)
			}
		}
	}
	if n := len(live.Sandboxes(d.Home)); n != 32 {
		t.Errorf("%d sandboxes run, 31 forks and the source should", n)
	}
}

// checkedEvents reads a batch to its end and checks the order of F46.
func checkedEvents(t testing.TB, b *client.Batch) []*client.Event {
	t.Helper()
	var all []*client.Event
	placed := map[uint32]uint32{}
	seen := map[uint32]bool{}
	for ev, err := range b.Events(within(t)) {
		if err != nil {
			t.Fatal(err)
		}
		if len(all) > 0 && (all[len(all)-1].Done != nil || ev.Sequence != all[len(all)-1].Sequence+1) {
			t.Fatalf("event %d after %d", ev.Sequence, all[len(all)-1].Sequence)
		}
		all = append(all, ev)
		if ev.Placement != nil {
			placed[ev.Placement.GetGroup()] += ev.Placement.GetCount()
		}
		if i := ev.Item; i != nil {
			if placed[i.GetGroup()] == 0 && i.GetError() == "" {
				t.Errorf("fork %d is ready before its group was placed", i.GetIndex())
			}
			if seen[i.GetIndex()] {
				t.Errorf("fork %d ended twice", i.GetIndex())
			}
			seen[i.GetIndex()] = true
			if i.GetError() == "" && (i.GetSpace() != "local:"+i.GetName() || i.GetHost() != "local" || ev.Sandbox.GetId() != i.GetSpace()) {
				t.Errorf("ready item: %v, sandbox %v", i, ev.Sandbox)
			}
		}
	}
	if len(all) == 0 || all[len(all)-1].Done == nil {
		t.Fatal("the batch did not end with its summary")
	}
	if done := all[len(all)-1].Done; int(done.GetOk()+done.GetFailed()) != len(seen) {
		t.Errorf("%d items, summary %v", len(seen), done)
	}
	return all
}

// The caller goes away in mid-batch, then the daemon is killed: the books are
// right all the same, and can be replayed.
func TestBatchOutlivesItsCallerAndItsDaemon(t *testing.T) {
	d := live.Start(t, live.Options{})
	warm(t, d)
	const count = 16
	ctx, leave := context.WithCancel(within(t))
	b, err := d.Client.ForkMany(ctx, "base", count, &client.ForkManyOptions{NamePrefix: "f", MaxParallelPerHost: 2})
	if err != nil {
		t.Fatal(err)
	}
	ready := 0
	for ready < 3 {
		ev, err := b.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Item != nil {
			ready++
		}
	}
	batch := b.ID()
	leave()
	b.Close()
	d.Kill()
	d.Run()

	again, err := d.Client.AttachBatch(within(t), batch, 0)
	if err != nil {
		t.Fatal(err)
	}
	events := checkedEvents(t, again)
	done := events[len(events)-1].Done
	if done.GetOk()+done.GetFailed() != count {
		t.Errorf("summary: %v", done)
	}
	names := map[string]bool{}
	for _, ev := range events {
		if i := ev.Item; i != nil && i.GetError() == "" {
			names[i.GetName()] = true
			if got := d.Output(i.GetName(), "uname", "-n"); got != i.GetName() {
				t.Errorf("%s calls itself %s", i.GetName(), got)
			}
		}
	}
	if uint32(len(names)) != done.GetOk() || done.GetOk() < 3 {
		t.Errorf("%d ready forks work, the summary says %d", len(names), done.GetOk())
	}
	list, err := d.Client.ListSandboxes(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range list.GetSandboxes() {
		if sb.GetName() != "src" && !names[sb.GetName()] {
			t.Errorf("%s is in nobody's books", sb.GetName())
		}
	}
	d.Kill()
	d.Run()
	replay, err := d.Client.AttachBatch(within(t), batch, 0)
	if err != nil {
		t.Fatal(err)
	}
	if second := checkedEvents(t, replay); len(second) != len(events) {
		t.Errorf("%d events, then %d", len(events), len(second))
	}
}

// A call with a key that was used is the same batch, not another one.
func TestKeyMeansOneBatch(t *testing.T) {
	d := live.Start(t, live.Options{})
	warm(t, d)
	o := client.ForkManyOptions{NamePrefix: "f", Key: "once"}
	first, err := d.Client.ForkMany(within(t), "base", 2, &o)
	if err != nil {
		t.Fatal(err)
	}
	second, err := d.Client.ForkMany(within(t), "base", 2, &o)
	if err != nil {
		t.Fatal(err)
	}
	if first.ID() != second.ID() {
		t.Errorf("two batches: %s and %s", first.ID(), second.ID())
	}
	checkedEvents(t, first)
	checkedEvents(t, second)
	if _, err := d.Client.ForkMany(within(t), "base", 3, &o); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("another request with the same key: %v", err)
	}
}

// Two forks write one path, and neither sees the other's file, nor does the
// source.
func TestDisksAreApart(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "sleep", "1000")
	d.Output("src", "sh", "-c", "echo before > /root/x; echo more > /usr/local/y")
	b, err := d.Client.ForkMany(within(t), "src", 2, &client.ForkManyOptions{NamePrefix: "f"})
	if err != nil {
		t.Fatal(err)
	}
	checkedEvents(t, b)
	for _, n := range []string{"f-0", "f-1", "src"} {
		if got := d.Output(n, "cat", "/root/x", "/usr/local/y"); got != "before\nmore" {
			t.Errorf("%s has %q", n, got)
		}
		d.Output(n, "sh", "-c", "echo "+n+" > /root/x; rm /usr/local/y; echo "+n+" > /usr/local/z")
	}
	for _, n := range []string{"f-0", "f-1", "src"} {
		if got := d.Output(n, "sh", "-c", "cat /root/x /usr/local/z; ls /usr/local/y 2>/dev/null || echo gone"); got != n+"\n"+n+"\ngone" {
			t.Errorf("%s has %q", n, got)
		}
	}
	if _, err := os.Stat("/usr/local/z"); err == nil {
		t.Error("a sandbox wrote to this machine's /usr/local")
	}
}

// A stopped sandbox can be saved: its forks have its disk and start its
// command (F20).
func TestForkOfAStoppedSandboxStartsTheCommand(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "sh", "-c", "echo run >> /root/runs")
	live.Eventually(t, "the command ends", func() bool {
		sb, err := d.Client.GetSandbox(within(t), "src")
		return err == nil && sb.GetState().String() == "SANDBOX_STATE_STOPPED"
	})
	if _, err := d.Client.Fork(within(t), "src", "forked"); err != nil {
		t.Fatal(err)
	}
	live.Eventually(t, "the fork's command ends", func() bool {
		sb, err := d.Client.GetSandbox(within(t), "forked")
		return err == nil && sb.GetState().String() == "SANDBOX_STATE_STOPPED"
	})
	if all, err := d.Client.ListCheckpoints(within(t), true); err != nil || len(all) != 1 || all[0].GetHasMemory() {
		t.Errorf("checkpoints: %v %v", all, err)
	}
}
