package daemon_test

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

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
