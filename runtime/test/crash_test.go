package test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"brood/internal/base/errs"
	"brood/internal/sandbox/driver/gvisor/launch"

	"golang.org/x/sys/unix"
)

func TestLauncherDeathLosesNothing(t *testing.T) {
	w := newWorld(t)
	root := w.skeleton()
	src := w.run(w.container("src", root))
	before := src.counted()
	image := w.checkpoint("src")
	w.create(w.container("waiting", root))

	for range 3 {
		w.killLauncher()
		// The old descriptor and a new one both reach the guest.
		if n := src.count(); n < before {
			t.Errorf("the source went back to %d", n)
		}
		newGuest(t, w.channel("src")).want("hostname", "src")
	}
	if s := w.entry("waiting").Status; s != launch.Created {
		t.Errorf("the created container is %q", s)
	}
	if s := w.entry("src").Status; s != launch.Running {
		t.Errorf("the running container is %q", s)
	}
	// What an earlier launcher made can be used for everything.
	if err := w.client.Restore(w.ctx, launch.Restore{ID: "waiting", ImageDir: image}); err != nil {
		t.Fatalf("restore into an adopted container: %v", err)
	}
	if n := newGuest(t, w.channel("waiting")).count(); n < before {
		t.Errorf("the fork counts %d, and the source was at %d when it was saved", n, before)
	}
	again := w.checkpoint("src")
	w.killLauncher()
	w.restore(w.container("fork", root), again).want("hostname", "src")
	for _, id := range []string{"src", "waiting", "fork"} {
		w.destroy(id)
	}
}

// Whatever a launcher was doing when it died, the next one answers, lists what
// there is, and can destroy it all. Sandboxes that nobody touched go on.
func TestLauncherDiesInTheMiddle(t *testing.T) {
	rounds := 10
	if n, err := strconv.Atoi(os.Getenv("BROOD_TEST_ROUNDS")); err == nil {
		rounds = n
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t)
	root := w.image()
	source := w.run(w.container("source", root))
	source.counted()
	image := w.checkpoint("source")
	files, family := w.files(), w.helpers()

	for round := range rounds {
		id := fmt.Sprintf("victim-%d", round)
		ops := w.operations(id, root, image)
		op := ops[round%len(ops)]
		op.prepare()
		delay := time.Duration(random.Int64N(int64(op.takes)))
		name := fmt.Sprintf("%s killed after %v", op.name, delay)

		var opErr error
		var group sync.WaitGroup
		group.Go(func() { opErr = op.run() })
		<-time.After(delay)
		w.killLauncher()
		group.Wait()
		if opErr != nil && !errs.Is(opErr, errs.Unavailable) {
			t.Errorf("%s: %v", name, opErr)
		}
		op.check(name, opErr)
		if n := source.count(); n < 1 {
			t.Errorf("%s: the source counts %d", name, n)
		}
		w.destroy(id)
		if now := w.files(); now != files {
			t.Fatalf("%s: files before:\n%s\nafter:\n%s", name, files, now)
		}
		// The holder reaps what ended as it comes to it.
		now := w.helpers()
		for patience := time.Now().Add(10 * time.Second); now != family && time.Now().Before(patience); now = w.helpers() {
			<-time.After(10 * time.Millisecond)
		}
		if now != family {
			for _, pid := range familyOf(w.info.HolderPID) {
				t.Log(pid, statFields(pid), cmdline(pid))
			}
			t.Fatalf("%s: %d processes before, %d after", name, family, now)
		}
	}
}

// operation is one request that a launcher may die in.
type operation struct {
	name    string
	takes   time.Duration // about; the kill comes within it
	prepare func()
	run     func() error
	check   func(name string, err error)
}

func (w *world) operations(id string, root launch.Root, image string) []operation {
	none := func(string, error) {}
	create := func() error {
		f, err := w.client.Create(w.ctx, w.container(id, root))
		if err == nil {
			_ = f.Close()
		}
		return err
	}
	// A container that is listed as running answers.
	answers := func(name string, err error) {
		entry := w.entry(id)
		if err == nil && entry.Status != launch.Running {
			w.t.Errorf("%s: ended well, but it is %q", name, entry.Status)
		}
		if entry.Status == launch.Running {
			newGuest(w.t, w.channel(id)).count()
		}
	}
	dir := filepath.Join(filepath.Dir(w.dir), "image-of-"+id)
	return []operation{
		{"create", 150 * time.Millisecond, func() {}, create, none},
		{"restore", 150 * time.Millisecond,
			func() { w.create(w.container(id, root)) },
			func() error { return w.client.Restore(w.ctx, launch.Restore{ID: id, ImageDir: image}) },
			answers},
		{"start", 100 * time.Millisecond,
			func() { w.create(w.container(id, root)) },
			func() error { return w.client.Start(w.ctx, id) },
			answers},
		{"checkpoint", 60 * time.Millisecond,
			func() {
				w.run(w.container(id, root))
				if err := os.Mkdir(dir, 0o700); err != nil {
					w.t.Fatal(err)
				}
			},
			func() error { return w.client.Checkpoint(w.ctx, launch.Checkpoint{ID: id, Dir: dir}) },
			answers},
		{"destroy", 20 * time.Millisecond,
			func() { w.run(w.container(id, root)) },
			func() error { return w.client.Destroy(w.ctx, id) },
			func(name string, err error) {
				if err == nil && w.entry(id).ID != "" {
					w.t.Errorf("%s: destroyed, but listed as %+v", name, w.entry(id))
				}
			}},
	}
}

func TestHolderDeathLeavesNothing(t *testing.T) {
	w := newWorld(t)
	root := w.skeleton()
	w.run(w.container("runs", root))
	w.create(w.container("waits", root))
	family := familyOf(w.info.HolderPID)
	if len(family) < 6 {
		t.Errorf("only %d processes: %v", len(family), family)
	}
	if err := unix.Kill(w.info.HolderPID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, pid := range family {
		gone(t, pid)
	}
	if _, err := w.client.Info(w.ctx); !errs.Is(err, errs.Unavailable) {
		t.Errorf("without a holder: %v", err)
	}
	// Another holder starts with a clean slate in the same directory.
	w.start()
	if list, err := w.client.List(w.ctx); err != nil || len(list) != 0 {
		t.Errorf("after a new start: %+v, %v", list, err)
	}
	w.run(w.container("runs", root)).want("hostname", "runs")
}

func TestHangupAndInterruptAreIgnored(t *testing.T) {
	w := newWorld(t)
	for _, pid := range []int{w.info.HolderPID, w.info.LauncherPID} {
		for _, sig := range []unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGPIPE} {
			if err := unix.Kill(pid, sig); err != nil {
				t.Fatal(err)
			}
		}
	}
	now, err := w.client.Info(w.ctx)
	if err != nil || now != w.info {
		t.Errorf("was %+v, is %+v, %v", w.info, now, err)
	}
}

func TestTerminatedHolderTakesAllAlong(t *testing.T) {
	w := newWorld(t)
	w.run(w.container("runs", w.skeleton()))
	family := familyOf(w.info.HolderPID)
	if err := unix.Kill(w.info.HolderPID, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for _, pid := range family {
		gone(t, pid)
	}
	w.start()
}

// A state file cut short, which gVisor's way of writing allows, is a container
// that can only be destroyed.
func TestDamagedState(t *testing.T) {
	w := newWorld(t)
	root := w.skeleton()
	w.run(w.container("good", root))
	for i, content := range []string{"", "{", `{"id":"bad"}`, `{"id":"bad","sandbox":{},"saver":{}}`} {
		id := fmt.Sprintf("bad-%d", i)
		w.run(w.container(id, root))
		path := filepath.Join(fmt.Sprintf("/proc/%d/root", w.info.HolderPID), w.dir, "state", fmt.Sprintf("%s_sandbox:%s.state", id, id))
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		w.killLauncher()
		entry := w.entry(id)
		if entry.Status != launch.Unknown && entry.Status != launch.Stopped {
			t.Errorf("state %q: listed as %+v", content, entry)
		}
		w.destroy(id)
	}
	if s := w.entry("good").Status; s != launch.Running {
		t.Errorf("the good one is %q", s)
	}
	if n := len(familyOf(w.info.HolderPID)); n > 12 {
		t.Errorf("%d processes are left", n)
	}
}

// A full disk fails the checkpoint, and the source goes on.
func TestCheckpointOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: mounting a small tmpfs needs root")
	}
	w := newWorld(t)
	small := filepath.Join(filepath.Dir(w.dir), "small")
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=2m,mode=755"); err != nil {
		t.Skipf("SKIPPED: no tmpfs here: %v", err)
	}
	t.Cleanup(func() {
		// gVisor closes a failed checkpoint's file when Go collects it.
		if err := unix.Unmount(small, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	src := w.run(w.container("src", w.skeleton()))
	src.want("alloc 32", "ok")
	dir := filepath.Join(small, "image")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	err := w.client.Checkpoint(w.ctx, launch.Checkpoint{ID: "src", Dir: dir})
	if err == nil {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			info, _ := e.Info()
			t.Log(e.Name(), info.Size())
		}
		t.Fatal("a checkpoint of 32 MiB fits into 2")
	}
	t.Log(err)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("a failed checkpoint leaves %d files, %v", len(entries), err)
	}
	var room unix.Statfs_t
	if err := unix.Statfs(small, &room); err != nil || room.Bfree+2 < room.Blocks {
		t.Errorf("a failed checkpoint leaves %d of %d blocks free, %v", room.Bfree, room.Blocks, err)
	}
	src.want("hostname", "src")
	w.checkpoint("src")
}

// gone fails the test when pid does not end.
func gone(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
		if n > 0 {
			return
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
	t.Errorf("process %d is left: %s", pid, cmdline(pid))
}

// helpers counts the runtime's processes: holder, launcher, sandboxes and file
// servers, and zombies. A sandbox's own stubs, which come and go with what its
// guest does, have no command line.
func (w *world) helpers() int {
	n := 0
	for _, pid := range familyOf(w.info.HolderPID) {
		f := statFields(pid)
		if cmdline(pid) != "" || (len(f) > 1 && f[0] == "Z" && f[1] == strconv.Itoa(w.info.HolderPID)) {
			n++
		}
	}
	return n
}
