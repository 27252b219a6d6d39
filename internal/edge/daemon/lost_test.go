package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	daemonv1 "brood/api/cua/daemon/v1"
	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/config"
	"brood/internal/edge/daemon"
	"brood/internal/home"
	"brood/internal/sandbox"
	"brood/internal/wire"
)

// A daemon whose home was deleted ends by itself, and leaves alone what is at
// the same place by then.
func TestEndsWithItsHome(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()+"/home"
	ready, ended := make(chan struct{}), make(chan error, 1)
	g := life.NewGroup(t.Context())
	g.Go("daemon", func(ctx context.Context) error {
		ended <- daemon.Run(ctx, daemon.Params{
			Home: dir, Version: "test", Settings: config.Settings{MinFree: "1M"}, Log: &bytes.Buffer{},
			Driver: func(*home.Home) (sandbox.Driver, error) { return w.Driver(), nil },
			Ready:  func(wire.Discovery) { close(ready) },
		})
		return nil
	})
	<-ready
	check(t, os.RemoveAll(dir))
	check(t, os.Mkdir(dir, 0o700))
	check(t, os.WriteFile(home.At(dir).Discovery(), []byte("another's"), 0o600))
	select {
	case err := <-ended:
		if !errs.Is(err, errs.FailedPrecondition) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it runs on")
	}
	check(t, g.Stop())
	if b, err := os.ReadFile(home.At(dir).Discovery()); string(b) != "another's" {
		t.Errorf("%q, %v", b, err)
	}
}

// What leads to a daemon is put back, whatever happened to it, and who is
// connected stays so.
func TestLostFilesAreMadeAnew(t *testing.T) {
	dir := t.TempDir()
	h := home.At(dir)
	c, _ := serve(t, dir, newWorld(t))
	for name, lose := range map[string]func() error{
		"no socket":            func() error { return os.Remove(h.Socket()) },
		"no discovery file":    func() error { return os.Remove(h.Discovery()) },
		"garbage":              func() error { return os.WriteFile(h.Discovery(), []byte("{garbage"), 0o600) },
		"no address":           func() error { return os.WriteFile(h.Discovery(), []byte("{}"), 0o600) },
		"neither":              func() error { return errors.Join(os.Remove(h.Socket()), os.Remove(h.Discovery())) },
		"a file and no socket": func() error { return errors.Join(os.Remove(h.Socket()), os.WriteFile(h.Socket(), nil, 0o600)) },
	} {
		check(t, lose())
		eventually(t, name, func() bool {
			again, err := client.Dial(t.Context(), client.Options{Home: dir})
			if err != nil {
				return false
			}
			again.Close()
			b, err := os.ReadFile(h.Discovery())
			return err == nil && bytes.Contains(b, []byte(h.Socket()))
		})
		if _, err := c.ListSandboxes(t.Context()); err != nil {
			t.Errorf("%s: who was connected has %v", name, err)
		}
	}
}

// A home that was moved is no deleted one: what runs in it runs on, and the
// next daemon there has it.
func TestMovedHomeKeepsItsSandboxes(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()+"/home"
	c, stop := serve(t, dir, w)
	_, err := c.CreateSandbox(t.Context(), createIn(folder(t), "src"), nil)
	check(t, err)
	check(t, os.Rename(dir, dir+"-moved"))
	at := home.At(dir + "-moved")
	eventually(t, "its daemon has ended", func() bool { held, err := at.Held("daemon"); return err == nil && !held })
	if err := stop(); !errs.Is(err, errs.FailedPrecondition) {
		t.Errorf("it ended with %v", err)
	}
	for _, path := range []string{at.Socket(), at.Discovery(), dir} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	next, _ := serve(t, at.Dir(), w)
	sb, err := next.GetSandbox(t.Context(), "src")
	if err != nil || sb.GetState() != daemonv1.SandboxState_SANDBOX_STATE_RUNNING {
		t.Errorf("%v %v", sb, err)
	}
}

// eventually waits until ok; it fails the test after a generous time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit, tick := time.NewTimer(time.Minute), time.NewTicker(5*time.Millisecond)
	defer limit.Stop()
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("did not come to be: %s", what)
		}
	}
}
