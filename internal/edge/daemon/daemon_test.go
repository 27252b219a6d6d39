package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	broodv1 "brood/api/brood/v1"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/config"
	"brood/internal/edge/daemon"
	"brood/internal/home"
	"brood/internal/sandbox"
	"brood/internal/sandbox/driver/fake"
	"brood/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve runs a daemon in this process, whose sandboxes are data, until the
// test ends or stop is called, which returns what Run returned.
func serve(t *testing.T, dir string, w *fake.World) (c *client.Client, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	g := life.NewGroup(ctx)
	var log bytes.Buffer
	g.Go("daemon", func(ctx context.Context) error {
		ended <- daemon.Run(ctx, daemon.Params{
			Home: dir, Version: "test", Settings: config.Settings{MinFree: "1M"}, Log: &log,
			Driver: func(*home.Home) (sandbox.Driver, error) { return w.Driver(), nil },
			Ready:  func(wire.Discovery) { close(ready) },
		})
		return nil
	})
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		t.Fatalf("the daemon ended: %v\n%s", err, &log)
	}
	c, err := client.Dial(ctx, client.Options{Home: dir})
	check(t, err)
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		c.Close()
		cancel()
		_ = g.Wait()
		return <-ended
	}
	t.Cleanup(func() { check(t, stop()) })
	return c, stop
}

func folder(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	check(t, os.WriteFile(filepath.Join(root, "file"), []byte("x"), 0o600))
	return root
}

func createIn(root, name string) *broodv1.CreateSandboxRequest {
	return &broodv1.CreateSandboxRequest{Create: &daemonv1.CreateSandboxRequest{Name: name, Image: root, Command: []string{"counter"}}}
}

func newWorld(t *testing.T) *fake.World {
	t.Helper()
	w := fake.NewWorld()
	t.Cleanup(func() { check(t, w.Close()) })
	return w
}

// Many callers at once do everything there is under few names, so that they
// meet; whatever each is answered carries a code that fits, and in the end the
// daemon has what its books say.
func TestManyCallersAtOnce(t *testing.T) {
	w, root := newWorld(t), folder(t)
	c, _ := serve(t, t.TempDir(), w)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := c.CreateSandbox(ctx, createIn(root, "src"), nil)
	check(t, err)
	_, err = c.CreateCheckpoint(ctx, "src", "base", client.CheckpointOptions{})
	check(t, err)
	expected := []errs.Code{errs.AlreadyExists, errs.NotFound, errs.FailedPrecondition, errs.ResourceExhausted, errs.Unavailable}
	errors := life.Each(ctx, 64, 16, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("s-%d", i%5)
		switch i % 8 {
		case 0:
			_, err := c.CreateSandbox(ctx, createIn(root, name), nil)
			return err
		case 1:
			_, err := c.CreateCheckpoint(ctx, name, fmt.Sprintf("c-%d", i%3), client.CheckpointOptions{})
			return err
		case 2:
			_, err := c.Fork(ctx, "base", name)
			return err
		case 3:
			return c.DeleteSandbox(ctx, name)
		case 4:
			b, err := c.ForkMany(ctx, "base", 3, &client.ForkManyOptions{NamePrefix: "s"})
			if err == nil {
				_, err = b.Collect(ctx)
			}
			return err
		case 5:
			_, err := c.DeleteCheckpoint(ctx, fmt.Sprintf("c-%d", i%3), true)
			return err
		case 6:
			var out bytes.Buffer
			_, err := c.Exec(ctx, name, client.ExecOptions{Argv: []string{"hostname"}}, client.Streams{Out: &out})
			return err
		default:
			_, err := c.ListSandboxes(ctx)
			return err
		}
	})
	for i, err := range errors {
		ok := err == nil
		for _, code := range expected {
			ok = ok || errs.Is(err, code)
		}
		if !ok {
			t.Errorf("caller %d: %v (code %s)", i, err, errs.CodeOf(err))
		}
	}
	list, err := c.ListSandboxes(ctx)
	check(t, err)
	for _, sb := range list.GetSandboxes() {
		check(t, c.DeleteSandbox(ctx, sb.GetName()))
	}
	if left, err := w.Driver().List(ctx); err != nil || len(left) != 0 {
		t.Errorf("no name is left, sandboxes are: %+v, %v", left, err)
	}
}

// A home has one daemon: the second is refused, and the first goes on.
func TestOneDaemonForAHome(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	c, _ := serve(t, dir, w)
	err := daemon.Run(t.Context(), daemon.Params{Home: dir, Version: "second", Log: &bytes.Buffer{}})
	if !errs.Is(err, errs.AlreadyExists) {
		t.Errorf("the second: %v", err)
	}
	_, err = c.ListSandboxes(t.Context())
	check(t, err)
}

// A caller that follows something is told when the daemon stops, and does not
// keep it from stopping.
func TestStopsWithCallersThatWait(t *testing.T) {
	w, root, dir := newWorld(t), folder(t), t.TempDir()
	c, stop := serve(t, dir, w)
	_, err := c.CreateSandbox(t.Context(), createIn(root, "src"), nil)
	check(t, err)
	hasty, err := client.Dial(t.Context(), client.Options{Home: dir, Patience: 50 * time.Millisecond})
	check(t, err)
	defer hasty.Close()
	following, told := make(chan struct{}), make(chan error, 1)
	g := life.NewGroup(t.Context())
	g.Go("follow", func(ctx context.Context) error {
		first := true
		for _, err := range hasty.Logs(ctx, "src", client.LogOptions{Follow: true}) {
			if first {
				first = false
				close(following)
			}
			if err != nil {
				told <- err
				return nil
			}
		}
		told <- errors.New("the stream ended as if the sandbox had")
		return nil
	})
	<-following
	check(t, stop())
	check(t, g.Wait())
	if err := <-told; !errs.Is(err, errs.Unavailable) && !errs.Is(err, errs.Canceled) {
		t.Errorf("told %v (code %s)", err, errs.CodeOf(err))
	}
}

// A daemon that could not say where it is does not begin.
func TestRefusesAHomeThatIsNoText(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bad\xff")
	err := daemon.Run(t.Context(), daemon.Params{Home: dir, Log: io.Discard})
	if !errs.Is(err, errs.InvalidArgument) {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("it was made")
	}
}
