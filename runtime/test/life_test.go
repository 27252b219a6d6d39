package test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/sandbox/driver/gvisor/launch"

	"golang.org/x/sys/unix"
)

func TestForkGoesOnFromTheSameState(t *testing.T) {
	w := newWorld(t)
	for name, root := range map[string]launch.Root{"host": w.skeleton(), "image": w.image()} {
		t.Run(name, func(t *testing.T) {
			src := w.run(w.container(name+"-src", root))
			src.want("alloc 16", "ok")
			sum := src.ask("sum")
			before := src.count()
			src.want("write /opt/note from-source", "ok")
			src.want("mount /mnt/tmp", "ok")
			image := w.checkpoint(name + "-src")
			after := src.count()

			for _, id := range []string{name + "-a", name + "-b", name + "-c"} {
				g := w.restore(w.container(id, root), image)
				if n := g.count(); n < before {
					t.Errorf("%s counts %d, the source had %d", id, n, before)
				}
				g.want("sum", sum)
				g.want("read /opt/note", "from-source")
				g.want("write /opt/note "+id, "ok")
				g.want("hostname "+id, id)
				g.want("say hello-from-"+id, "ok")
				if out := w.output(id); out != "hello-from-"+id+"\n" {
					t.Errorf("%s wrote %q", id, out)
				}
			}
			if n := src.count(); n <= after {
				t.Errorf("the source stopped at %d", n)
			}
			src.want("read /opt/note", "from-source")
			src.want("hostname", name+"-src")
		})
	}
	// What the guests wrote is nowhere on this machine.
	if _, err := os.Stat(filepath.Join(guestDir, "note")); err == nil {
		t.Error("a guest wrote into a folder of the machine")
	}
}

func TestForkOfAForkGoesOn(t *testing.T) {
	w := newWorld(t)
	root := w.image()
	src := w.run(w.container("gen-0", root))
	src.want("write /tmp/trail a", "ok")
	image := w.checkpoint("gen-0")
	for _, id := range []string{"gen-1", "gen-2", "gen-3"} {
		g := w.restore(w.container(id, root), image)
		before := g.count()
		g.want("read /tmp/trail", "a")
		image = w.checkpoint(id)
		if now := g.count(); now < before {
			t.Errorf("%s went back from %d to %d", id, before, now)
		}
		w.destroy(id)
	}
}

func TestDescriptors(t *testing.T) {
	w := newWorld(t)
	root := w.skeleton()
	c := w.container("src", root)
	if err := os.WriteFile(c.Files[0].Name(), []byte("typed"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Files = append(c.Files, w.file("four", "in-four"), w.file("five", "in-five"))
	src := w.run(c)
	src.want("stdin", "stdin:typed")
	src.want("fd 4", "in-four")
	src.want("fd 5", "in-five")
	src.want("limit", "1048576")
	image := w.checkpoint("src")

	// A fork's descriptors are its own, and logs do not renumber the channel.
	f := w.container("fork", root)
	f.DebugDir = filepath.Dir(w.dir)
	f.Files = append(f.Files, w.file("four-b", "other-four"), w.file("five-b", "other-five"))
	g := w.restore(f, image)
	g.want("fd 4", "other-four")
	g.want("fd 5", "other-five")

	// The channel can be had again; both descriptors are one stream.
	again, err := w.client.Channel(w.ctx, "fork")
	if err != nil {
		t.Fatal(err)
	}
	newGuest(t, again).want("fd 4", "other-four")
	if out := w.output("src"); out != "guest is up\n" {
		t.Errorf("source wrote %q", out)
	}
	if out := w.output("fork"); out != "" {
		t.Errorf("a fork's output starts at the fork, it has %q", out)
	}
}

func TestExitStatus(t *testing.T) {
	w := newWorld(t)
	root := w.skeleton()
	for id, reload := range map[string]bool{"plain": false, "reloaded": true} {
		g := w.run(w.container(id, root))
		if reload {
			w.killLauncher()
		}
		if _, err := g.try("exit 7"); err == nil {
			t.Error("the guest answered its own end")
		}
		exit, err := w.client.Wait(w.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if want := (launch.Exit{Known: true, Code: 7}); exit != want {
			t.Errorf("%s: exit %+v, want %+v", id, exit, want)
		}
		if got := w.entry(id); got.Status != launch.Stopped || got.Exit == nil || *got.Exit != exit {
			t.Errorf("%s is listed as %+v", id, got)
		}
		w.destroy(id)
	}

	w.run(w.container("killed", root))
	if err := unix.Kill(w.entry("killed").PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	exit, err := w.client.Wait(w.ctx, "killed")
	if err != nil {
		t.Fatal(err)
	}
	if want := (launch.Exit{Known: true, Code: 137, Signal: 9}); exit != want {
		t.Errorf("killed: exit %+v, want %+v", exit, want)
	}
}

func TestWaitEndsWithTheCaller(t *testing.T) {
	w := newWorld(t)
	w.run(w.container("runs", w.skeleton()))
	ctx, cancel := context.WithCancel(w.ctx)
	var group sync.WaitGroup
	group.Go(cancel)
	if _, err := w.client.Wait(ctx, "runs"); !errs.Is(err, errs.Canceled) {
		t.Errorf("wait: %v", err)
	}
	group.Wait()
}

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	root := w.skeleton()
	w.create(w.container("there", root))
	empty := t.TempDir()
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	create := func(change func(*launch.Create)) error {
		c := w.container("new", root)
		change(&c)
		f, err := w.client.Create(w.ctx, c)
		if err == nil {
			_ = f.Close()
		}
		return err
	}
	for name, c := range map[string]struct {
		err  error
		want errs.Code
	}{
		"start what is not there":      {w.client.Start(w.ctx, "none"), errs.NotFound},
		"save what is not there":       {w.client.Checkpoint(w.ctx, launch.Checkpoint{ID: "none", Dir: empty}), errs.NotFound},
		"save what does not run":       {w.client.Checkpoint(w.ctx, launch.Checkpoint{ID: "there", Dir: empty}), errs.FailedPrecondition},
		"bad id":                       {w.client.Start(w.ctx, "../x"), errs.InvalidArgument},
		"stop with containers":         {w.client.Stop(w.ctx, false), errs.FailedPrecondition},
		"taken id":                     {create(func(c *launch.Create) { c.ID = "there" }), errs.AlreadyExists},
		"no argv":                      {create(func(c *launch.Create) { c.Argv = nil }), errs.InvalidArgument},
		"two files":                    {create(func(c *launch.Create) { c.Files = c.Files[:2] }), errs.InvalidArgument},
		"no root":                      {create(func(c *launch.Create) { c.Root = launch.Root{} }), errs.InvalidArgument},
		"missing image":                {create(func(c *launch.Create) { c.Root = launch.Root{EROFS: "/none.erofs"} }), errs.FailedPrecondition},
		"missing skeleton":             {create(func(c *launch.Create) { c.Root = launch.Root{Host: &launch.HostRoot{Dir: "/none"}} }), errs.FailedPrecondition},
		"missing mount point":          {create(func(c *launch.Create) { c.Root = w.bind("/usr", "/none") }), errs.FailedPrecondition},
		"missing source":               {create(func(c *launch.Create) { c.Root = w.bind("/none", "/usr") }), errs.FailedPrecondition},
		"same folder with other binds": {create(func(c *launch.Create) { c.Root = launch.Root{Host: &launch.HostRoot{Dir: root.Host.Dir}} }), errs.FailedPrecondition},
		"relative bind":                {create(func(c *launch.Create) { c.Root = w.bind("usr", "/usr") }), errs.InvalidArgument},
		"restore from nothing":         {w.client.Restore(w.ctx, launch.Restore{ID: "there", ImageDir: empty}), errs.Internal},
		"start after a failed restore": {w.client.Start(w.ctx, "there"), errs.FailedPrecondition},
	} {
		if got := errs.CodeOf(c.err); got != c.want {
			t.Errorf("%s: %v (%v), want %v", name, c.err, got, c.want)
		}
	}
	list, err := w.client.List(w.ctx)
	if err != nil || len(list) != 1 {
		t.Errorf("refused requests left %+v, %v", list, err)
	}
	w.destroy("there")

	w.run(w.container("runs", root))
	if err := w.client.Start(w.ctx, "runs"); !errs.Is(err, errs.FailedPrecondition) {
		t.Errorf("start twice: %v", err)
	}
	if err := w.client.Checkpoint(w.ctx, launch.Checkpoint{ID: "runs", Dir: full}); !errs.Is(err, errs.FailedPrecondition) {
		t.Errorf("save into a full directory: %v", err)
	}
	if _, err := os.Stat(filepath.Join(full, "x")); err != nil {
		t.Errorf("a refused checkpoint removed files: %v", err)
	}
}

func TestDestroyLeavesNothing(t *testing.T) {
	w := newWorld(t)
	files, family := w.files(), w.helpers()
	for name, root := range map[string]launch.Root{"host": w.skeleton(), "image": w.image()} {
		w.create(w.container(name+"-created", root))
		src := w.run(w.container(name+"-runs", root))
		image := w.checkpoint(name + "-runs")
		w.restore(w.container(name+"-fork", root), image)
		w.run(w.container(name+"-ended", root))
		_, _ = src.try("exit 0")
		for _, id := range []string{"-created", "-runs", "-fork", "-ended", "-never-was"} {
			w.destroy(name + id)
			w.destroy(name + id)
		}
	}
	if now := w.files(); now != files {
		t.Errorf("files before:\n%s\nafter:\n%s", files, now)
	}
	if now := w.helpers(); now != family {
		for _, pid := range familyOf(w.info.HolderPID) {
			t.Log(pid, statFields(pid)[0], cmdline(pid))
		}
		t.Errorf("%d processes before, %d after", family, now)
	}
	if m := w.mounts(); strings.Contains(m, "skeleton") {
		t.Errorf("mounts are left: %s", m)
	}
}

// Nothing of the runtime's mounts is seen outside.
func TestMountsAreItsOwn(t *testing.T) {
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	root := w.skeleton()
	g := w.run(w.container("one", root))
	if got := g.ask("list /usr"); !strings.Contains(got, "bin") {
		t.Errorf("/usr in the guest: %q", got)
	}
	entries, err := os.ReadDir(filepath.Join(root.Host.Dir, "usr"))
	if err != nil || len(entries) != 0 {
		t.Errorf("outside, the mount point has %d entries, %v", len(entries), err)
	}
	inside := strings.Count(w.mounts(), "skeleton")
	w.killLauncher()
	w.run(w.container("two", root))
	if now := strings.Count(w.mounts(), "skeleton"); now != inside {
		t.Errorf("%d mounts with one launcher, %d after another", inside, now)
	}
	w.destroy("one")
	g2 := newGuest(t, w.channel("two"))
	if got := g2.ask("list /usr"); !strings.Contains(got, "bin") {
		t.Errorf("/usr in the second guest: %q", got)
	}
	now, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || string(now) != string(before) {
		t.Errorf("this process's mounts changed (%v):\n%s", err, now)
	}
}

func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	root := w.image()
	src := w.run(w.container("src", root))
	before := src.count()
	image := w.checkpoint("src")
	const forks = 8
	var group sync.WaitGroup
	failed := make([]error, forks)
	for i := range forks {
		c := w.container("fork-"+string(rune('a'+i)), root)
		group.Go(func() {
			f, err := w.client.Create(w.ctx, c)
			if err == nil {
				defer func() { _ = f.Close() }()
				err = w.client.Restore(w.ctx, launch.Restore{ID: c.ID, ImageDir: image})
			}
			failed[i] = err
		})
	}
	group.Wait()
	for i, err := range failed {
		id := "fork-" + string(rune('a'+i))
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		if n := newGuest(t, w.channel(id)).count(); n < before {
			t.Errorf("%s counts %d, the source had %d", id, n, before)
		}
	}
}

func TestTwoStarts(t *testing.T) {
	w := newWorld(t)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if err := launch.StartHolder(w.ctx, launch.StartParams{RuntimePath: runtimePath, Dir: w.dir}); err != nil {
				t.Errorf("another start: %v", err)
			}
		})
	}
	group.Wait()
	now, err := w.client.Info(w.ctx)
	if err != nil || now.HolderPID != w.info.HolderPID {
		t.Errorf("the holder was %d, now %d, %v", w.info.HolderPID, now.HolderPID, err)
	}
	if now.Version == "" || !now.Precompiled {
		t.Errorf("info %+v: want a version and compiled filters", now)
	}
}
