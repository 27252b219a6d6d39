package test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"brood/internal/sandbox/driver/gvisor/launch"
	"brood/internal/sandbox/image/erofs"

	"golang.org/x/sys/unix"
)

// patience bounds any one wait of a test; nothing asserts how long things take.
const patience = 60 * time.Second

// world is a running holder and launcher in a directory of their own.
type world struct {
	t      *testing.T
	ctx    context.Context
	dir    string
	log    string
	client *launch.Client
	info   launch.Info
}

// newWorld starts holder and launcher and stops them when the test ends, when
// nothing may be left.
func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	base, err := os.MkdirTemp("", "w-")
	if err != nil {
		t.Fatal(err)
	}
	// A directory that no socket address could name.
	dir := filepath.Join(base, strings.Repeat("long-", 30), "run")
	w := &world{t: t, ctx: ctx, dir: dir, log: filepath.Join(base, "log")}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	w.start()
	t.Cleanup(w.finish)
	return w
}

func (w *world) start() {
	w.t.Helper()
	log, err := os.OpenFile(w.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	if err := launch.StartHolder(w.ctx, launch.StartParams{RuntimePath: runtimePath, Dir: w.dir, Log: log}); err != nil {
		w.t.Fatalf("start: %v\n%s", err, w.logs())
	}
	if w.client, err = launch.Dial(w.ctx, w.dir); err != nil {
		w.t.Fatal(err)
	}
	if w.info, err = w.client.Info(w.ctx); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) logs() string {
	var all strings.Builder
	for _, p := range []string{w.log, filepath.Join(w.dir, "launcher.log")} {
		b, _ := os.ReadFile(p)
		all.WriteString(p + ":\n" + string(b))
	}
	return all.String()
}

func (w *world) finish() {
	if w.t.Failed() {
		w.t.Log(w.logs())
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	family := familyOf(w.info.HolderPID)
	if err := w.client.Stop(ctx, true); err != nil {
		w.t.Errorf("stop: %v", err)
	}
	_ = w.client.Close()
	for _, pid := range family {
		if alive(pid) {
			w.t.Errorf("process %d is left: %s", pid, cmdline(pid))
		}
	}
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		w.t.Error(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "launcher.log") {
			w.t.Errorf("%s is left in the run directory", e.Name())
		}
	}
}

// skeleton makes a host root with the guest program.
func (w *world) skeleton() launch.Root {
	w.t.Helper()
	dir := filepath.Join(filepath.Dir(w.dir), "skeleton")
	for _, d := range []string{"opt", "data", "tmp", "run", "usr"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
	return launch.Root{Host: &launch.HostRoot{Dir: dir, Binds: []launch.Bind{
		{Source: guestDir, Target: "/opt", ReadOnly: true},
		{Source: "/usr", Target: "/usr", ReadOnly: true},
	}}}
}

// container returns what the tests create, with standard output in a file.
func (w *world) container(id string, root launch.Root) launch.Create {
	w.t.Helper()
	return launch.Create{
		ID: id, Root: root,
		Argv: []string{"/opt/guest"}, Env: []string{"PATH=/usr/bin:/bin", "GOMAXPROCS=2"},
		Hostname: id,
		Files:    w.stdio(id),
	}
}

func (w *world) stdio(id string) []*os.File {
	w.t.Helper()
	open := func(name string, flag int) *os.File {
		f, err := os.OpenFile(name, flag, 0o600)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = f.Close() })
		return f
	}
	base := filepath.Dir(w.dir)
	out := open(filepath.Join(base, id+".out"), os.O_CREATE|os.O_RDWR|os.O_APPEND)
	in := open(filepath.Join(base, id+".in"), os.O_CREATE|os.O_RDONLY)
	return []*os.File{in, out, out}
}

func (w *world) output(id string) string {
	b, err := os.ReadFile(filepath.Join(filepath.Dir(w.dir), id+".out"))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// guest is the other end of a container's channel.
type guest struct {
	t *testing.T
	f *os.File
	r *bufio.Reader
}

func newGuest(t *testing.T, f *os.File) *guest {
	t.Cleanup(func() { _ = f.Close() })
	return &guest{t: t, f: f, r: bufio.NewReader(f)}
}

func (g *guest) try(format string, args ...any) (string, error) {
	if err := g.f.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(g.f, format+"\n", args...); err != nil {
		return "", err
	}
	line, err := g.r.ReadString('\n')
	return strings.TrimSpace(line), err
}

func (g *guest) ask(format string, args ...any) string {
	g.t.Helper()
	line, err := g.try(format, args...)
	if err != nil {
		g.t.Fatalf("ask guest "+format+": %v", append(args, err)...)
	}
	return line
}

func (g *guest) count() int {
	g.t.Helper()
	n, err := strconv.Atoi(g.ask("count"))
	if err != nil {
		g.t.Fatal(err)
	}
	return n
}

// counted is count once it is above zero: a guest answers before it has begun
// to count.
func (g *guest) counted() int {
	g.t.Helper()
	for range 10_000 {
		if n := g.count(); n > 0 {
			return n
		}
	}
	g.t.Fatal("the guest does not count")
	return 0
}

func (w *world) create(c launch.Create) *guest {
	w.t.Helper()
	f, err := w.client.Create(w.ctx, c)
	if err != nil {
		w.t.Fatalf("create %s: %v\n%s", c.ID, err, w.logs())
	}
	return newGuest(w.t, f)
}

func (w *world) run(c launch.Create) *guest {
	w.t.Helper()
	g := w.create(c)
	if err := w.client.Start(w.ctx, c.ID); err != nil {
		w.t.Fatalf("start %s: %v\n%s", c.ID, err, w.logs())
	}
	return g
}

func (w *world) restore(c launch.Create, image string) *guest {
	w.t.Helper()
	g := w.create(c)
	if err := w.client.Restore(w.ctx, launch.Restore{ID: c.ID, ImageDir: image}); err != nil {
		w.t.Fatalf("restore %s: %v\n%s", c.ID, err, w.logs())
	}
	return g
}

func (w *world) checkpoint(id string) string {
	w.t.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(w.dir), "image-")
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.client.Checkpoint(w.ctx, launch.Checkpoint{ID: id, Dir: dir}); err != nil {
		w.t.Fatalf("checkpoint %s: %v\n%s", id, err, w.logs())
	}
	return dir
}

func (w *world) destroy(id string) {
	w.t.Helper()
	if err := w.client.Destroy(w.ctx, id); err != nil {
		w.t.Fatalf("destroy %s: %v\n%s", id, err, w.logs())
	}
}

// killLauncher kills the launcher and returns when another one answers.
func (w *world) killLauncher() {
	w.t.Helper()
	old, err := w.client.Info(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := unix.Kill(old.LauncherPID, unix.SIGKILL); err != nil {
		w.t.Fatalf("kill launcher %d: %v", old.LauncherPID, err)
	}
	now, err := w.client.Info(w.ctx)
	for err == nil && now.LauncherPID == old.LauncherPID {
		now, err = w.client.Info(w.ctx)
	}
	if err != nil {
		w.t.Fatalf("no launcher came back: %v\n%s", err, w.logs())
	}
}

// familyOf returns pid and all its descendants.
func familyOf(pid int) []int {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		p, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if fields := statFields(p); len(fields) > 1 {
			parent, _ := strconv.Atoi(fields[1])
			children[parent] = append(children[parent], p)
		}
	}
	family := []int{pid}
	for i := 0; i < len(family); i++ {
		family = append(family, children[family[i]]...)
	}
	return family
}

// statFields are the fields of /proc/PID/stat from the state on.
func statFields(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+1:])
}

func alive(pid int) bool {
	f := statFields(pid)
	return len(f) > 0 && f[0] != "Z" && f[0] != "X"
}

func cmdline(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.ReplaceAll(string(b), "\x00", " ")
}

// want asks and compares.
func (g *guest) want(request, answer string) {
	g.t.Helper()
	if got := g.ask("%s", request); got != answer {
		g.t.Errorf("guest answers %q to %q, want %q", got, request, answer)
	}
}

// image makes an EROFS root with the guest program.
func (w *world) image() launch.Root {
	w.t.Helper()
	path := filepath.Join(filepath.Dir(w.dir), "root.erofs")
	out, err := os.Create(path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	program, err := os.Open(filepath.Join(guestDir, "guest"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = program.Close() }()
	writer := erofs.NewWriter(out, nil)
	file, err := writer.NewFile(0o755, program)
	if err != nil {
		w.t.Fatal(err)
	}
	root := erofs.NewDir(0o755)
	for _, name := range []string{"opt", "usr", "tmp", "data"} {
		dir := erofs.NewDir(0o755)
		if err := root.Add(name, dir); err != nil {
			w.t.Fatal(err)
		}
		if name == "opt" {
			if err := dir.Add("guest", file); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	if err := writer.Finish(root); err != nil {
		w.t.Fatal(err)
	}
	return launch.Root{EROFS: path}
}

// bind is a root in a folder of its own with one bind.
func (w *world) bind(source, target string) launch.Root {
	w.t.Helper()
	dir := filepath.Join(filepath.Dir(w.dir), "other")
	if err := os.MkdirAll(filepath.Join(dir, "usr"), 0o755); err != nil {
		w.t.Fatal(err)
	}
	return launch.Root{Host: &launch.HostRoot{Dir: dir, Binds: []launch.Bind{{Source: source, Target: target}}}}
}

// file opens a new file with content for a guest.
func (w *world) file(name, content string) *os.File {
	w.t.Helper()
	path := filepath.Join(filepath.Dir(w.dir), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = f.Close() })
	return f
}

func (w *world) channel(id string) *os.File {
	w.t.Helper()
	f, err := w.client.Channel(w.ctx, id)
	if err != nil {
		w.t.Fatalf("channel of %s: %v", id, err)
	}
	return f
}

func (w *world) entry(id string) launch.Container {
	w.t.Helper()
	list, err := w.client.List(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range list {
		if c.ID == id {
			return c
		}
	}
	return launch.Container{}
}

// files lists the run directory.
func (w *world) files() string {
	w.t.Helper()
	var names []string
	err := filepath.WalkDir(w.dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil && !strings.Contains(path, "launcher.log") {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Join(names, "\n")
}

// mounts are those of the runtime's namespace.
func (w *world) mounts() string {
	w.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", w.info.HolderPID))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}
