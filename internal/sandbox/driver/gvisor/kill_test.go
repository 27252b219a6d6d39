//go:build linux

package gvisor

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/home"
	"brood/internal/sandbox"
	"brood/internal/sandbox/driver/fake"
	"brood/internal/sandbox/guest"
	"brood/internal/sandbox/guest/proto"
)

// rig is a home with a driver, and sandboxes of the small image in it.
type rig struct {
	t     *testing.T
	ctx   context.Context
	h     *home.Home
	d     *Driver
	magic string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, h: newHome(t), magic: id.Random(proto.MagicSize)}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(context.Background(), 5*time.Minute)
	r.d = newDriver(r.h)
	t.Cleanup(func() {
		defer cancel()
		all, err := r.d.List(r.ctx)
		for _, l := range all {
			err = errors.Join(err, r.d.Destroy(r.ctx, l.ID))
		}
		if err := errors.Join(err, r.d.Close(r.ctx)); err != nil {
			t.Error(err)
		}
	})
	return r
}

// files are none that anybody reads.
func (r *rig) files() (sandbox.Files, func()) {
	r.t.Helper()
	var all [3]*os.File
	for i := range all {
		f, err := os.CreateTemp(r.h.Dir(), "output-")
		check(r.t, err)
		all[i] = f
	}
	return sandbox.Files{Diagnostics: all[0], Log: [2]*os.File{all[1], all[2]}}, func() {
		for _, f := range all {
			check(r.t, f.Close())
		}
	}
}

func (r *rig) tryStart(d sandbox.Driver, sb id.Sandbox) (*guest.Client, error) {
	files, done := r.files()
	defer done()
	ch, err := d.Start(r.ctx, sandbox.StartParams{ID: sb, Root: shared.erofs, Hostname: string(sb), Magic: r.magic, Files: files})
	if err != nil {
		return nil, err
	}
	return r.connect(ch)
}

func (r *rig) tryRestore(d sandbox.Driver, sb id.Sandbox, dir string) (*guest.Client, error) {
	files, done := r.files()
	defer done()
	ch, err := d.Restore(r.ctx, sandbox.RestoreParams{
		ID: sb, Dir: dir, Runtime: shared.runtime, Root: shared.erofs, Hostname: string(sb), Magic: r.magic, Files: files,
	})
	if err != nil {
		return nil, err
	}
	return r.connect(ch)
}

func (r *rig) connect(ch sandbox.Channel) (*guest.Client, error) {
	secret, err := hex.DecodeString(r.magic)
	if err != nil {
		return nil, err
	}
	c, err := guest.Connect(r.ctx, ch, secret)
	if err == nil {
		r.t.Cleanup(func() { _ = c.Close() }) // may have ended with its sandbox
	}
	return c, err
}

func (r *rig) start(sb id.Sandbox) *guest.Client {
	r.t.Helper()
	c, err := r.tryStart(r.d, sb)
	check(r.t, err)
	return c
}

func (r *rig) capture(sb id.Sandbox, c *guest.Client) (string, error) {
	r.t.Helper()
	dir, err := os.MkdirTemp(r.h.Dir(), "image-")
	check(r.t, err)
	_, err = c.Freeze(r.ctx, guest.FreezeArgs{Capture: true})
	check(r.t, err)
	failed := r.d.Capture(r.ctx, sb, dir)
	check(r.t, c.Thaw(r.ctx))
	return dir, failed
}

// pids are the launcher's and the holder's.
func (r *rig) pids() (launcher, holder int) {
	r.t.Helper()
	c, err := r.d.running(r.ctx, shared.runtime)
	check(r.t, err)
	info, err := c.Info(r.ctx)
	check(r.t, err)
	return info.LauncherPID, info.HolderPID
}

// kill ends a process and waits until it is gone.
func kill(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	check(t, err)
	defer unix.Close(fd)
	check(t, unix.Kill(pid, unix.SIGKILL))
	_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
	for errors.Is(err, unix.EINTR) {
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
	}
	check(t, err)
}

// The launcher is killed between operations: nobody notices but by the time
// it takes to start another.
func TestLauncherKilledBetween(t *testing.T) {
	r := newRig(t)
	src := r.start("src")
	var other *guest.Client
	for _, step := range []func() error{
		func() (err error) { other, err = r.tryStart(r.d, "other"); return err },
		func() error {
			dir, err := r.capture("src", src)
			if err == nil {
				_, err = r.tryRestore(r.d, "fork", dir)
			}
			return err
		},
		func() error {
			all, err := r.d.List(r.ctx)
			if len(all) != 3 {
				err = errors.Join(err, fmt.Errorf("there are %+v", all))
			}
			return err
		},
		func() error { return r.d.Destroy(r.ctx, "fork") },
		func() error {
			err := other.Close()
			ch, cerr := r.d.Channel(r.ctx, "other")
			if cerr == nil {
				_, cerr = r.connect(ch)
			}
			return errors.Join(err, cerr)
		},
	} {
		launcher, _ := r.pids()
		kill(t, launcher)
		check(t, step())
		_, err := src.Ping(r.ctx)
		check(t, err)
	}
}

// The launcher is killed in the middle of an operation: it succeeds or leaves
// nothing, the source is unharmed, and the next one works.
func TestLauncherKilledDuring(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: left out by -short")
	}
	r := newRig(t)
	src := r.start("src")
	image, err := r.capture("src", src)
	check(t, err)
	for what, do := range map[string]func() error{
		"start":   func() error { _, err := r.tryStart(r.d, "new"); return err },
		"restore": func() error { _, err := r.tryRestore(r.d, "new", image); return err },
		"capture": func() error { _, err := r.capture("src", src); return err },
		"destroy": func() error { return r.d.Destroy(r.ctx, "new") },
	} {
		for _, after := range []time.Duration{0, 20 * time.Millisecond, 80 * time.Millisecond} {
			if what == "destroy" {
				r.start("new")
			}
			launcher, _ := r.pids()
			g := life.NewGroup(r.ctx)
			g.Go("kill", func(context.Context) error {
				timer := time.NewTimer(after)
				defer timer.Stop()
				<-timer.C
				return unix.Kill(launcher, unix.SIGKILL)
			})
			err := do()
			check(t, g.Wait())
			if err != nil {
				t.Logf("%s, its launcher killed after %s: %v", what, after, err)
			}
			all, lerr := r.d.List(r.ctx)
			check(t, lerr)
			made := err == nil && (what == "start" || what == "restore")
			if len(all) != 1+btoi(made) {
				t.Errorf("%s, its launcher killed after %s: %v; there are %+v", what, after, err, all)
			}
			if what == "destroy" && err != nil {
				t.Errorf("destroy, its launcher killed after %s: %v", after, err)
			}
			check(t, r.d.Destroy(r.ctx, "new"))
			_, perr := src.Ping(r.ctx)
			check(t, perr)
		}
	}
	image, err = r.capture("src", src)
	check(t, err)
	_, err = r.tryRestore(r.d, "new", image)
	check(t, err)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The holder is killed: everything is gone, which is said, and it all starts
// again.
func TestHolderKilled(t *testing.T) {
	r := newRig(t)
	src := r.start("src")
	image, err := r.capture("src", src)
	check(t, err)
	waiting := make(chan struct{})
	var waited error
	g := life.NewGroup(r.ctx)
	g.Go("wait", func(ctx context.Context) error {
		close(waiting)
		waited = r.d.Wait(ctx, "src")
		return nil
	})
	<-waiting
	_, holder := r.pids()
	kill(t, holder)
	check(t, g.Wait())
	if waited != nil && !errs.Is(waited, errs.NotFound) {
		t.Errorf("wait: %v", waited)
	}
	<-src.Done()
	all, err := r.d.List(r.ctx)
	if err != nil || len(all) != 0 {
		t.Errorf("list %+v, %v", all, err)
	}
	if err := r.d.Capture(r.ctx, "src", r.t.TempDir()); !errs.Is(err, errs.NotFound) {
		t.Errorf("capture: %v", err)
	}
	if _, err := r.d.Channel(r.ctx, "src"); !errs.Is(err, errs.NotFound) {
		t.Errorf("channel: %v", err)
	}
	check(t, r.d.Destroy(r.ctx, "src"))
	_, err = r.tryRestore(r.d, "src", image)
	check(t, err)
	if _, again := r.pids(); again == holder {
		t.Error("the holder is the one that was killed")
	}
}

// A driver that is closed right after its holder was killed removes what is
// left of it.
func TestCloseAfterHolderKilled(t *testing.T) {
	r := newRig(t)
	r.start("src")
	_, holder := r.pids()
	kill(t, holder)
	check(t, r.d.Close(r.ctx))
	if left, err := filepath.Glob(r.h.Run() + "/*/*"); err != nil || len(left) != 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// Many first starts at once, from several drivers, make one holder.
func TestOneHolder(t *testing.T) {
	r := newRig(t)
	drivers := []*Driver{r.d, newDriver(r.h), newDriver(r.h)}
	failed := life.Each(r.ctx, 6, 6, func(_ context.Context, i int) error {
		_, err := r.tryStart(drivers[i%len(drivers)], id.Sandbox(fmt.Sprintf("sb-%d", i)))
		return err
	})
	check(t, errors.Join(failed...))
	holders := 0
	for _, p := range census(r.h.Dir()) {
		if strings.Contains(p, " holder ") {
			holders++
		}
	}
	if holders != 1 {
		t.Errorf("%d holders: %q", holders, census(r.h.Dir()))
	}
	all, err := r.d.List(r.ctx)
	if err != nil || len(all) != 6 {
		t.Errorf("there are %+v, %v", all, err)
	}
	for _, d := range drivers[1:] {
		check(t, d.Close(r.ctx))
	}
}

// A fault for one restore of many: the others are not touched.
func TestFaultyRestore(t *testing.T) {
	r := newRig(t)
	src := r.start("src")
	image, err := r.capture("src", src)
	check(t, err)
	broken := errs.New(errs.Unavailable, "broken on purpose")
	d := fake.Faulty(r.d, fake.Hooks{fake.OpRestore: fake.Nth(2, broken)}, fake.Hooks{fake.OpRestore: fake.Nth(4, broken)})
	failed := life.Each(r.ctx, 6, 2, func(_ context.Context, i int) error {
		_, err := r.tryRestore(d, id.Sandbox(fmt.Sprintf("fork-%d", i)), image)
		return err
	})
	bad := 0
	for _, err := range failed {
		if err != nil {
			bad++
			if !errs.Is(err, errs.Unavailable) {
				t.Error(err)
			}
		}
	}
	all, err := d.List(r.ctx)
	if err != nil || bad != 2 || len(all) != 1+4 {
		t.Errorf("%d failed, there are %+v, %v", bad, all, err)
	}
}
