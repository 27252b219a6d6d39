package fork_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/test/live"
)

// capture saves a sandbox under each name, all at once, and returns the errors
// by position.
func capture(t testing.TB, d *live.Daemon, source string, names ...string) []error {
	t.Helper()
	all := make([]error, len(names))
	g := life.NewGroup(within(t))
	for i, name := range names {
		g.Go("capture", func(ctx context.Context) error {
			_, all[i] = d.Client.CreateCheckpoint(ctx, source, name, client.CheckpointOptions{})
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return all
}

// Of captures that ask for one name at once, one has it (F25).
func TestOneNameIsGivenOnce(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "a", "sleep", "1000")
	create(t, d, "b", "sleep", "1000")
	all := append(capture(t, d, "a", "x", "x", "x"), capture(t, d, "b", "x")...)
	made := 0
	for _, err := range all {
		switch {
		case err == nil:
			made++
		case !errs.Is(err, errs.AlreadyExists):
			t.Errorf("refused with %v, want %s", err, errs.AlreadyExists)
		}
	}
	if made != 1 {
		t.Errorf("%d captures have the name x: %v", made, all)
	}
	if _, err := d.Client.Fork(within(t), "x", "f"); err != nil {
		t.Error(err)
	}
}

// Captures of one source at once are each whole (F25).
func TestCapturesOfOneSourceAtOnce(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "python3", "-u", "-c", counter)
	live.Eventually(t, "the counter counts", func() bool {
		out, code := d.Exec("src", "cat", "/tmp/n")
		return code == 0 && out != ""
	})
	before := count(t, d, "src")
	for i, err := range capture(t, d, "src", "x", "y", "z") {
		if err != nil {
			t.Errorf("capture %d: %v", i, err)
		}
	}
	for _, name := range []string{"x", "y", "z"} {
		if _, err := d.Client.Fork(within(t), name, "f-"+name); err != nil {
			t.Error(err)
			continue
		}
		if n := count(t, d, "f-"+name); n < before {
			t.Errorf("the fork of %s counts from %d, the source was at %d", name, n, before)
		}
	}
}

// What would leave too little disk is refused before the source is paused
// (F26), and leaves nothing.
func TestCaptureThatWouldFillTheDisk(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "sleep", "1000")
	d.Stop()
	d.Upgrade(live.Options{Env: []string{"BROOD_MIN_FREE=9000G"}})
	err := errors.Join(capture(t, d, "src", "x")...)
	if !errs.Is(err, errs.InsufficientDisk) || !strings.Contains(err.Error(), "free") {
		t.Errorf("err = %v (code %s)", err, errs.CodeOf(err))
	}
	_, err = d.Client.ForkMany(within(t), "src", 2, nil)
	if !errs.Is(err, errs.InsufficientDisk) {
		t.Errorf("fork-many: %v (code %s)", err, errs.CodeOf(err))
	}
	if left, _ := os.ReadDir(filepath.Join(d.Home, "checkpoints")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	d.Output("src", "true")
}

// logs is what a sandbox has written so far.
func logs(t testing.TB, d *live.Daemon, name string) string {
	t.Helper()
	var all []byte
	for part, err := range d.Client.Logs(within(t), name, client.LogOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, part.GetData()...)
	}
	return string(all)
}

// The forks' output is kept from the fork on, each in its own file.
func TestForksHaveLogsOfTheirOwn(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "sh", "-c", "echo started; while :; do uname -n; sleep 0.05; done")
	live.Eventually(t, "the source writes", func() bool { return strings.Count(logs(t, d, "src"), "\n") > 2 })
	if _, err := d.Client.CreateCheckpoint(within(t), "src", "base", client.CheckpointOptions{}); err != nil {
		t.Fatal(err)
	}
	b, err := d.Client.ForkMany(within(t), "base", 3, &client.ForkManyOptions{NamePrefix: "f"})
	if err != nil {
		t.Fatal(err)
	}
	checkedEvents(t, b)
	for _, name := range []string{"f-0", "f-1", "f-2"} {
		var text string
		live.Eventually(t, name+" writes", func() bool {
			text = logs(t, d, name)
			return strings.Count(text, "\n") > 2
		})
		// A line that the guest had not read at the capture is everybody's.
		if text = strings.TrimPrefix(text, "src\n"); text != strings.Repeat(name+"\n", strings.Count(text, "\n")) {
			t.Errorf("the output of %s is %q", name, text)
		}
	}
	if text := logs(t, d, "src"); !strings.HasPrefix(text, "started\nsrc\n") || strings.Contains(text, "f-") {
		t.Errorf("the source's output: %.200q", text)
	}
}
