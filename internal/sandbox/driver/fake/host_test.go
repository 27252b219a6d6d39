package fake_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/home"
	"brood/internal/sandbox"
	"brood/internal/sandbox/checkpoint"
	"brood/internal/sandbox/driver/fake"
	"brood/internal/sandbox/guest"
	"brood/internal/sandbox/host"
	"brood/internal/sandbox/image"
)

// openHost is what a daemon does with a home when it starts.
func openHost(t *testing.T, h *home.Home, d sandbox.Driver, change ...func(*host.Params)) *host.Host {
	t.Helper()
	program := []byte("a guest program that nobody runs")
	images, err := image.Open(h, image.GuestBinary{Bytes: program, Digest: digest.Of(program)})
	check(t, err)
	cps, err := checkpoint.Open(h)
	check(t, err)
	p := host.Params{
		Home: h, Driver: d, Images: images, Checkpoints: cps, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Needs: checkpoint.NeedsHere(), MaxStarting: 4, MinFree: 1,
	}
	for _, c := range change {
		c(&p)
	}
	o, err := host.Open(t.Context(), p)
	check(t, err)
	return o
}

// newHost is a host of a new home, and a folder to be an image.
func newHost(t *testing.T, change ...func(*host.Params)) (o *host.Host, root string) {
	t.Helper()
	h, err := home.Open(t.TempDir())
	check(t, err)
	root = t.TempDir()
	check(t, os.WriteFile(filepath.Join(root, "file"), []byte("x"), 0o600))
	o = openHost(t, h, newWorld(t).Driver(), change...)
	t.Cleanup(func() { check(t, o.Close()) })
	return o, root
}

// The host cannot tell a fake from a machine: it makes, captures, forks with a
// fault, is opened again by the next daemon, and removes.
func TestHostOverAFake(t *testing.T) {
	w := newWorld(t)
	h, err := home.Open(t.TempDir())
	check(t, err)
	root := t.TempDir()
	check(t, os.WriteFile(filepath.Join(root, "file"), []byte("x"), 0o600))
	broken := errs.New(errs.Unavailable, "broken on purpose")
	o := openHost(t, h, fake.Faulty(w.Driver(), fake.Hooks{fake.OpRestore: fake.Nth(3, broken)}, nil))
	_, err = o.Create(t.Context(), host.CreateParams{
		Name: "src", Image: root, Command: guest.Command{Argv: []string{"counter", "/tmp/n", "80"}},
	})
	check(t, err)
	_, err = o.Capture(t.Context(), host.CaptureParams{Source: "src", Name: "base"})
	check(t, err)
	failed := 0
	for _, err := range life.Each(t.Context(), 4, 4, func(ctx context.Context, i int) error {
		_, err := o.Fork(ctx, host.ForkParams{Checkpoint: "base", Name: id.Name(fmt.Sprintf("f-%d", i)), Index: i})
		return err
	}) {
		if err != nil && !errors.Is(err, broken) {
			t.Error(err)
		}
		if err != nil {
			failed++
		}
	}
	if all := o.List(); failed != 1 || len(all) != 4 {
		t.Errorf("%d failed, there are %d sandboxes", failed, len(all))
	}
	check(t, o.Close())

	o = openHost(t, h, w.Driver())
	defer func() { check(t, o.Close()) }()
	for _, sb := range o.List() {
		g, _, err := o.Guest(sb.Name)
		if err != nil {
			t.Errorf("%s after a restart: %v", sb.Name, err)
			continue
		}
		if out, _ := sh(t, g, "look", "hostname; cat /tmp/n"); !strings.HasPrefix(out, string(sb.Name)+"\n") {
			t.Errorf("%s says %q", sb.Name, out)
		}
		check(t, o.Delete(t.Context(), sb.Name))
	}
	if all, err := w.Driver().List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v are left, %v", all, err)
	}
}

// The limit of sandboxes is told as a number that reads well at one too.
func TestTheLimitOfSandboxesIsTold(t *testing.T) {
	o, root := newHost(t, func(p *host.Params) { p.MaxSandboxes = 1 })
	_, err := o.Create(t.Context(), host.CreateParams{Name: "one", Image: root})
	check(t, err)
	_, err = o.Create(t.Context(), host.CreateParams{Name: "two", Image: root})
	if !errs.Is(err, errs.ResourceExhausted) || !strings.Contains(err.Error(), "limit of sandboxes on this machine, 1, is reached") {
		t.Errorf("%v", err)
	}
}

// Two records with one name: nothing is ended, and the younger has a name like
// the old one from then on.
func TestOfTwoWithOneNameTheYoungerIsRenamed(t *testing.T) {
	w := newWorld(t)
	h, err := home.Open(t.TempDir())
	check(t, err)
	root := t.TempDir()
	check(t, os.WriteFile(filepath.Join(root, "file"), []byte("x"), 0o600))
	o := openHost(t, h, w.Driver())
	ids := map[id.Name]id.Sandbox{}
	for _, name := range []id.Name{"one", "one-2", "other"} {
		sb, err := o.Create(t.Context(), host.CreateParams{Name: string(name), Image: root, Command: guest.Command{Argv: []string{"counter"}}})
		check(t, err)
		ids[name] = sb.ID
	}
	check(t, o.Close())
	path := filepath.Join(h.Sandboxes(), string(ids["other"]), "sandbox.json")
	b, err := os.ReadFile(path)
	check(t, err)
	check(t, os.WriteFile(path, bytes.Replace(b, []byte(`"name":"other"`), []byte(`"name":"one"`), 1), 0o600))
	for range 2 {
		o = openHost(t, h, w.Driver())
		for name, want := range map[id.Name]id.Sandbox{"one": ids["one"], "one-2": ids["one-2"], "one-3": ids["other"]} {
			if sb, err := o.Get(name); err != nil || sb.ID != want || sb.State != sandbox.Running {
				t.Errorf("%s: %s %s %v", name, sb.ID, sb.State, err)
			}
		}
		check(t, o.Close())
	}
}

// A record that was damaged costs nobody what runs in the sandbox: it is listed
// as failed until it is removed.
func TestADamagedRecordEndsNothing(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "cut": `{"format":1,"id"`, "another's": `{"format":1,"id":"sb-0123456789abcdef"}`} {
		b := newHosted(t, nil)
		sb, err := b.create(host.CreateParams{Name: "one"}, "counter")
		check(t, err)
		check(t, b.host.Close())
		check(t, os.WriteFile(filepath.Join(b.home.Sandboxes(), string(sb.ID), "sandbox.json"), []byte(content), 0o600))
		for range 2 {
			b.host = openHost(t, b.home, b.w.Driver())
			all := b.host.List()
			if len(all) != 1 || all[0].ID != sb.ID || all[0].State != sandbox.Failed || all[0].Known() || !strings.Contains(all[0].Reason, "record is damaged") {
				t.Fatalf("%s: %+v", name, all)
			}
			if _, _, err := b.host.Guest(all[0].Name); !errs.Is(err, errs.FailedPrecondition) || !strings.Contains(err.Error(), "record is damaged") {
				t.Errorf("%s: used: %v", name, err)
			}
			if live, err := b.w.Driver().List(t.Context()); err != nil || len(live) != 1 || !live[0].Running {
				t.Errorf("%s: what ran is %+v, %v", name, live, err)
			}
			check(t, b.host.Close())
		}
		b.host = openHost(t, b.home, b.w.Driver())
		check(t, b.host.Delete(t.Context(), b.host.List()[0].Name))
		b.gone()
	}
}

// What a runtime says of a file it cannot read is told in one line, with what
// to do; the whole is in the log.
func TestRestoreThatFailsNamesVerify(t *testing.T) {
	h, err := home.Open(t.TempDir())
	check(t, err)
	root := t.TempDir()
	check(t, os.WriteFile(filepath.Join(root, "file"), []byte("x"), 0o600))
	var log bytes.Buffer
	choked := errors.New("failed to load kernel: unknown header: 467:\ngoroutine 31 [running]:\nstate.safely()")
	o := openHost(t, h, fake.Faulty(newWorld(t).Driver(), fake.Hooks{fake.OpRestore: fake.Nth(1, choked)}, nil), func(p *host.Params) {
		p.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	_, err = o.Create(t.Context(), host.CreateParams{Name: "src", Image: root, Command: guest.Command{Argv: []string{"counter"}}})
	check(t, err)
	_, err = o.Capture(t.Context(), host.CaptureParams{Source: "src", Name: "base"})
	check(t, err)
	_, err = o.Fork(t.Context(), host.ForkParams{Checkpoint: "base", Name: "f"})
	if err == nil || strings.Contains(err.Error(), "goroutine") || !strings.Contains(err.Error(), "unknown header: 467: the checkpoint may be damaged, `brood sb checkpoints verify base`") {
		t.Errorf("%v", err)
	}
	check(t, o.Close())
	if !strings.Contains(log.String(), "goroutine 31") {
		t.Errorf("the log has %s", &log)
	}
}

// Temporary checkpoints of forks of forks all go with the last of them.
func TestTemporaryCheckpointsGoOneAfterTheOther(t *testing.T) {
	b := newHosted(t, nil)
	_, err := b.create(host.CreateParams{Name: "f0"}, "counter")
	check(t, err)
	for n := range 3 {
		from, cp, to := id.Name(fmt.Sprintf("f%d", n)), id.Name(fmt.Sprintf("t%d", n)), id.Name(fmt.Sprintf("f%d", n+1))
		batch := id.Batch("b-" + string(cp))
		release := b.host.HoldBatch(batch)
		_, err := b.host.Capture(t.Context(), host.CaptureParams{Source: from, Name: cp, Temporary: batch})
		check(t, err)
		_, err = b.host.Fork(t.Context(), host.ForkParams{Checkpoint: cp, Name: to, Batch: batch})
		check(t, err)
		release()
	}
	left := func() int {
		all, err := os.ReadDir(b.home.Checkpoints())
		check(t, err)
		return len(all)
	}
	for _, name := range []id.Name{"f1", "f2"} {
		check(t, b.host.Delete(t.Context(), name))
		if n := left(); n != 3 {
			t.Errorf("%d checkpoints are left though f3 stands on all", n)
		}
	}
	check(t, b.host.Delete(t.Context(), "f3"))
	if n := left(); n != 0 {
		t.Errorf("%d checkpoints are left", n)
	}
}

// The refusal of a full disk names the folder that a person knows, and says how
// a daemon that runs learns of another limit.
func TestFullDiskIsToldWithoutInnerPaths(t *testing.T) {
	h, err := home.Open(t.TempDir())
	check(t, err)
	root := t.TempDir()
	check(t, os.WriteFile(filepath.Join(root, "file"), []byte("x"), 0o600))
	o := openHost(t, h, newWorld(t).Driver(), func(p *host.Params) { p.MinFree = 1 << 60 })
	defer func() { check(t, o.Close()) }()
	_, err = o.Create(t.Context(), host.CreateParams{Name: "src", Image: root, Command: guest.Command{Argv: []string{"counter"}}})
	check(t, err)
	_, err = o.Capture(t.Context(), host.CaptureParams{Source: "src", Name: "base"})
	if !errs.Is(err, errs.InsufficientDisk) || strings.Contains(err.Error(), "draft") || !strings.Contains(err.Error(), "`brood daemon restart`") {
		t.Errorf("%v", err)
	}
}

// TestACheckpointThatABatchForksIsNotReplaced: the rest of its forks would have
// nothing to go on from.
func TestACheckpointThatABatchForksIsNotReplaced(t *testing.T) {
	o, root := newHost(t)
	_, err := o.Create(t.Context(), host.CreateParams{Name: "src", Image: root, Command: guest.Command{Argv: []string{"counter"}}})
	check(t, err)
	old, err := o.Capture(t.Context(), host.CaptureParams{Source: "src", Name: "base"})
	check(t, err)
	release := o.HoldBatch("b-1", old.Checkpoint.Digest)
	replace := host.CaptureParams{Source: "src", Name: "base", Replace: true}
	if _, err := o.Capture(t.Context(), replace); !errs.Is(err, errs.FailedPrecondition) || !strings.Contains(err.Error(), "batch b-1") {
		t.Errorf("%v", err)
	}
	_, err = o.Fork(t.Context(), host.ForkParams{Checkpoint: "base", Name: "f-0"})
	check(t, err)
	release()
	_, err = o.Capture(t.Context(), replace)
	check(t, err)
}

// TestASandboxInWhichSomethingWorksIsNotIdle: nobody need watch it.
func TestASandboxInWhichSomethingWorksIsNotIdle(t *testing.T) {
	o, root := newHost(t)
	for _, name := range []string{"works", "idle"} {
		_, err := o.Create(t.Context(), host.CreateParams{Name: name, Image: root, IdleTimeout: 300 * time.Millisecond, Command: guest.Command{Argv: []string{"counter"}}})
		check(t, err)
	}
	g, _, err := o.Guest("works")
	check(t, err)
	_, err = g.Leave(t.Context(), guest.ExecArgs{ID: "x-1", Command: guest.Command{Argv: []string{"counter"}}})
	check(t, err)
	gone := func(name id.Name) {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := o.Get(name); errs.Is(err, errs.NotFound) {
				return
			}
			select {
			case <-tick.C:
			case <-t.Context().Done():
				t.Fatalf("%s did not go", name)
			}
		}
	}
	gone("idle")
	if _, err := o.Get("works"); err != nil {
		t.Errorf("a sandbox went in which something works: %v", err)
	}
	check(t, g.Signal(t.Context(), "x-1", "KILL"))
	gone("works")
}
