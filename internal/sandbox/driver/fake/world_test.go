package fake_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox"
	"brood/internal/sandbox/driver/fake"
	"brood/internal/sandbox/guest"
)

var magic = strings.Repeat("5a", 32)

func newWorld(t *testing.T) *fake.World {
	t.Helper()
	w := fake.NewWorld()
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func startParams(sb id.Sandbox) sandbox.StartParams {
	return sandbox.StartParams{ID: sb, Root: sandbox.Root{EROFS: "/none"}, Hostname: string(sb), Magic: magic}
}

func connect(t *testing.T, ch sandbox.Channel) *guest.Client {
	t.Helper()
	secret, err := hex.DecodeString(magic)
	check(t, err)
	c, err := guest.Connect(t.Context(), ch, secret)
	check(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sh(t *testing.T, c *guest.Client, name, script string) (string, int) {
	t.Helper()
	x, err := c.Exec(t.Context(), guest.ExecArgs{ID: name, Command: guest.Command{Argv: []string{"/bin/sh", "-c", script}}})
	check(t, err)
	var out bytes.Buffer
	status, err := x.CopyTo(&out, &out)
	check(t, err)
	return out.String(), status.Code
}

func TestShell(t *testing.T) {
	w := newWorld(t)
	ch, err := w.Driver().Start(t.Context(), startParams("src"))
	check(t, err)
	c := connect(t, ch)
	for name, tc := range map[string]struct {
		script, out string
		code        int
	}{
		"exit":     {"echo a; exit 3", "a\n", 3},
		"and":      {"true && echo yes && false && echo no", "yes\n", 1},
		"or":       {"false || echo other; true || echo not", "other\n", 0},
		"file":     {"echo one > /tmp/f; echo two >> /tmp/f; cat /tmp/f", "one\ntwo\n", 0},
		"variable": {"A=b; echo \"$A ${A}c\" '$A'", "b bc $A\n", 0},
		"status":   {"false; echo $?", "1\n", 0},
		"missing":  {"nothing-like-it", "sh: nothing-like-it: command not found in the sandbox\n", 127},
		"host":     {"hostname", "src\n", 0},
		"sleep":    {"sleep 0.01 && echo awake", "awake\n", 0},
		"job":      {"sleep 0.01 & wait; echo done", "done\n", 0},
	} {
		if out, code := sh(t, c, name, tc.script); out != tc.out || code != tc.code {
			t.Errorf("%s: %q ended with %d and %q", name, tc.script, code, out)
		}
	}
}

func TestHooks(t *testing.T) {
	w := newWorld(t)
	d := w.Driver()
	broken := errs.New(errs.Unavailable, "broken")
	w.Fail(fake.OpStart, func(sb id.Sandbox) error {
		if sb == "b" {
			return broken
		}
		return nil
	})
	for _, sb := range []id.Sandbox{"a", "b"} {
		ch, err := d.Start(t.Context(), startParams(sb))
		if (err == nil) != (sb == "a") {
			t.Errorf("%s: %v", sb, err)
		}
		if ch != nil {
			check(t, ch.Close())
		}
	}
	// A start that hangs is shown as half made, and ends when it is destroyed.
	began := make(chan struct{})
	w.Hook(fake.Half, fake.OpStart, func(ctx context.Context, _ fake.Call) error {
		close(began)
		<-ctx.Done()
		return ctx.Err()
	})
	ended := make(chan error, 1)
	inBackground(t, func() {
		_, err := d.Start(context.Background(), startParams("c"))
		ended <- err
	})
	<-began
	all, err := d.List(t.Context())
	check(t, err)
	if len(all) != 2 || !all[0].Running || all[1] != (sandbox.Live{ID: "c"}) {
		t.Errorf("list %+v", all)
	}
	check(t, d.Destroy(t.Context(), "c"))
	if err := <-ended; err == nil {
		t.Error("a start that was destroyed succeeded")
	}
}

func TestTruncatedCaptureIsRefused(t *testing.T) {
	w := newWorld(t)
	d := w.Driver()
	ch, err := d.Start(t.Context(), startParams("src"))
	check(t, err)
	c := connect(t, ch)
	if err := d.Capture(t.Context(), "src", t.TempDir()); !errs.Is(err, errs.FailedPrecondition) {
		t.Errorf("capture of a guest that runs: %v", err)
	}
	_, err = c.Freeze(t.Context(), guest.FreezeArgs{Capture: true})
	check(t, err)
	w.Truncate(func(id.Sandbox) bool { return true })
	dir := t.TempDir()
	check(t, d.Capture(t.Context(), "src", dir))
	_, err = d.Restore(t.Context(), sandbox.RestoreParams{
		ID: "fork", Dir: dir, Runtime: d.Runtime(), Root: sandbox.Root{EROFS: "/none"}, Magic: magic,
	})
	if !errs.Is(err, errs.DataLoss) {
		t.Errorf("restore: %v", err)
	}
	files, err := os.ReadDir(filepath.Clean(dir))
	if err != nil || len(files) == 0 {
		t.Errorf("files %v, %v", files, err)
	}
}

func TestFaultyTakesBack(t *testing.T) {
	w := newWorld(t)
	broken := errs.New(errs.Unavailable, "broken")
	d := fake.Faulty(w.Driver(), fake.Hooks{fake.OpStart: fake.Nth(1, broken)}, fake.Hooks{fake.OpStart: fake.Nth(2, broken)})
	for range 2 {
		if _, err := d.Start(t.Context(), startParams("a")); !errs.Is(err, errs.Unavailable) {
			t.Errorf("start: %v", err)
		}
	}
	if all, err := d.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("list %+v, %v", all, err)
	}
	ch, err := d.Start(t.Context(), startParams("a"))
	check(t, err)
	check(t, ch.Close())
}
