package cache_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"brood/internal/base/digest"
	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/cache"
	"brood/internal/run/cache/entry"
	"brood/internal/run/cache/store"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("CACHE_TEST_CHILD"); dir != "" {
		child(dir)
	}
	goleak.VerifyTestMain(m)
}

// world is a workspace with a cache.
type world struct {
	t        testing.TB
	root     string
	dir      string // the cache's
	cfg      cache.Config
	warnings []error
	tracked  map[string]bool
	c        *cache.Cache
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, root: t.TempDir(), dir: filepath.Join(t.TempDir(), "cache"), tracked: map[string]bool{}}
	w.cfg = cache.Config{
		Projects: []string{".", "a", "a/nested", "b"},
		Local:    cache.Access{Read: true, Write: true}, Shared: cache.Access{Read: true, Write: true},
	}
	w.put("a/src.ts", "source")
	unlockAtEnd(t, w.root)
	return w
}

// unlockAtEnd lets an ordinary user's test remove the folders without w that
// are left under root.
func unlockAtEnd(t testing.TB, root string) {
	t.Cleanup(func() {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return nil
		})
	})
}

// at is the same cache with another root.
func (w *world) at(root string) *world {
	unlockAtEnd(w.t, root)
	return &world{t: w.t, root: root, dir: w.dir, cfg: w.cfg, tracked: w.tracked}
}

func (w *world) open() *cache.Cache {
	w.t.Helper()
	if w.c == nil {
		cfg := w.cfg
		cfg.Dir, cfg.Root = w.dir, w.root
		cfg.Tracked = func(name string) bool { return w.tracked[name] }
		cfg.Stamps = cache.Stamps(w.dir, w.root)
		cfg.Warn = func(err error) { w.warnings = append(w.warnings, err) }
		c, err := cache.Open(w.t.Context(), cfg)
		if err != nil {
			w.t.Fatal(err)
		}
		w.c = c
		w.t.Cleanup(w.close)
	}
	return w.c
}

// close ends what a process would have; the next call of open is a new one.
func (w *world) close() {
	if w.c != nil {
		if err := w.c.Close(context.Background()); err != nil {
			w.t.Error(err)
		}
		w.c = nil
	}
}

func (w *world) put(name, text string) {
	w.t.Helper()
	p := filepath.Join(w.root, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(names ...string) {
	w.t.Helper()
	for _, n := range names {
		if err := os.RemoveAll(filepath.Join(w.root, n)); err != nil {
			w.t.Fatal(err)
		}
	}
}

func task(name string, outputs ...string) *run.Task {
	p, short := id.Task(name).Split()
	return &run.Task{ID: id.Task(name), Project: p, Name: short, Dir: string(p), Definition: run.Definition{Cache: true, Outputs: outputs}}
}

func keyOf(s string) run.Key { return digest.Of([]byte(s)) }

// run does what a run does around f, which stands for the command.
func (w *world) run(t *run.Task, key, log string, f func()) error {
	w.t.Helper()
	c := w.open()
	before, err := c.Prepare(t)
	if err != nil {
		w.t.Fatal(err)
	}
	began := time.Now()
	f()
	return c.Save(w.t.Context(), cache.Saving{Task: t, Key: keyOf(key), Log: strings.NewReader(log), Before: before,
		Result: run.Result{Began: began, Ended: began.Add(3 * time.Second), Usage: run.Usage{CPU: 2 * time.Second, PeakMemory: 77}}})
}

func (w *world) mustRun(t *run.Task, key, log string, f func()) {
	w.t.Helper()
	if err := w.run(t, key, log, f); err != nil {
		w.t.Fatal(err)
	}
}

// restore looks up and restores; touched is "miss" when there is no hit.
func (w *world) restore(t *run.Task, key string) string {
	w.t.Helper()
	h, ok := w.open().Lookup(w.t.Context(), t, keyOf(key))
	if !ok {
		return "miss"
	}
	touched, err := h.Restore(w.t.Context(), func(id.Task) {})
	if err != nil {
		return "error: " + err.Error()
	}
	return map[bool]string{true: "restored", false: "same"}[touched]
}

func (w *world) want(t *run.Task, key, want string) {
	w.t.Helper()
	if got := w.restore(t, key); got != want {
		w.t.Errorf("%s: %s, want %s", t.ID, got, want)
	}
}

// tree describes everything below a folder, content, mode and all but times.
func tree(t testing.TB, root string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%q %v", strings.TrimPrefix(p, root), st.Mode())
		switch {
		case st.Mode().IsRegular():
			f, err := os.Open(p)
			if err != nil {
				return err
			}
			defer f.Close()
			sum, n, err := digest.Read(f)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %s", n, sum.Short())
		case st.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" -> %q", to)
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// times lists the modification times below a folder, folders included.
func times(t testing.TB, root string) string {
	var b strings.Builder
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err == nil {
			fmt.Fprintln(&b, p, st.ModTime().UnixNano())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// oddities fills dist with everything that is hard to put back.
func (w *world) oddities() {
	w.put("a/dist/plain.js", "plain")
	w.put("a/dist/same.js", "plain")
	w.put("a/dist/empty", "")
	w.put("a/dist/deep/er/x.js", strings.Repeat("compress me ", 10_000))
	w.put("a/dist/na\xffme \"q\"\nnewline", "odd")
	w.put("a/dist/[x]*?{y}", "glob")
	w.put("a/dist/ünïcödé", "utf-8")
	w.put("a/dist/locked/x", "in a folder without w")
	w.put("a/dist/run", "#!/bin/sh\n")
	w.put("a/dist/secret", strings.Repeat("s", 5000))
	for name, mode := range map[string]fs.FileMode{"run": 0o755, "secret": 0o600, "same.js": 0o444, "deep/er": 0o700, "locked": 0o555} {
		if err := os.Chmod(filepath.Join(w.root, "a/dist", name), mode); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, d := range []string{"a/dist/void", "a/dist/void2/void3"} {
		if err := os.MkdirAll(filepath.Join(w.root, d), 0o750); err != nil {
			w.t.Fatal(err)
		}
	}
	for from, to := range map[string]string{"link": "plain.js", "dirlink": "deep", "broken": "../../no\xffwhere"} {
		if err := os.Symlink(to, filepath.Join(w.root, "a/dist", from)); err != nil {
			w.t.Fatal(err)
		}
	}
}

func TestRestoreIsBitForBit(t *testing.T) {
	w := newWorld(t)
	build := task("a#build", "dist/**")
	w.mustRun(build, "k", "output of build\n", w.oddities)
	want := tree(t, w.root)
	w.want(build, "k", "same")
	_ = os.Chmod(filepath.Join(w.root, "a/dist/locked"), 0o755)
	w.remove("a/dist")
	w.close()
	w.want(build, "k", "restored")
	w.close()
	if got := tree(t, w.root); got != want {
		t.Errorf("restored:\n%s\nwant\n%s", got, want)
	}
	h, _ := w.open().Lookup(t.Context(), build, keyOf("k"))
	log, err := h.Log(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(log)
	if string(b) != "output of build\n" || h.Took() != 3*time.Second || h.Usage().PeakMemory != 77 || h.Remote() {
		t.Errorf("log %q, took %v, usage %+v", b, h.Took(), h.Usage())
	}
	// Another clone, with rubbish in the way.
	other := w.at(t.TempDir())
	other.put("a/src.ts", "source")
	other.put("a/dist/old.js", "stale")
	other.put("a/dist/deep", "a file where a folder was")
	other.put("a/dist/plain.js/x", "a folder where a file was")
	other.put("a/dist/link", "a file where a link was")
	other.want(build, "k", "restored")
	other.close()
	if got := tree(t, other.root); got != want {
		t.Errorf("in another folder:\n%s\nwant\n%s", got, want)
	}
}

func TestAHitThatMatchesTouchesNothing(t *testing.T) {
	w := newWorld(t)
	build := task("a#build", "dist/**")
	w.mustRun(build, "k", "", w.oddities)
	_ = os.Chmod(filepath.Join(w.root, "a/dist/locked"), 0o755)
	w.remove("a/dist")
	w.want(build, "k", "restored")
	w.close()
	before := times(t, w.root)
	for range 2 {
		w.want(build, "k", "same")
		w.close()
	}
	if after := times(t, w.root); after != before {
		t.Errorf("touched:\n%s\nbefore\n%s", after, before)
	}
	for what, f := range map[string]func(){
		"content": func() { w.put("a/dist/plain.js", "plaIn") },
		"more":    func() { w.put("a/dist/more.js", "x") },
		"less":    func() { w.remove("a/dist/plain.js") },
		"mode":    func() { _ = os.Chmod(filepath.Join(w.root, "a/dist/plain.js"), 0o755) },
		"folder":  func() { _ = os.Mkdir(filepath.Join(w.root, "a/dist/new"), 0o755) },
		"link":    func() { w.remove("a/dist/link"); _ = os.Symlink("empty", filepath.Join(w.root, "a/dist/link")) },
		"no void": func() { w.remove("a/dist/void") },
	} {
		f()
		if got := w.restore(build, "k"); got != "restored" {
			t.Errorf("%s: %s", what, got)
		}
		w.want(build, "k", "same")
	}
}

func TestWhatIsNeverTouched(t *testing.T) {
	w := newWorld(t)
	build := task("a#build", "**", "!src.ts", "!keep/**")
	build.Inputs = nil
	w.tracked = map[string]bool{"a/committed.js": true}
	w.mustRun(build, "k", "", func() { w.put("a/out.js", "out") })
	safe := []string{"a/committed.js", "a/.git/config", "a/sub/.git/HEAD", "a/nested/file", "a/node_modules/m/index.js", "a/keep/x", "a/src.ts"}
	for _, name := range safe {
		w.put(name, "safe")
	}
	w.put("a/stale.js", "stale")
	w.remove("a/out.js")
	w.want(build, "k", "restored")
	for _, name := range safe {
		if b, err := os.ReadFile(filepath.Join(w.root, name)); err != nil || string(b) != "safe" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if _, err := os.Stat(filepath.Join(w.root, "a/stale.js")); err == nil {
		t.Error("a stale output survives a hit")
	}
	w.want(build, "k", "same")
}

func TestLinksOutOfTheWorkspace(t *testing.T) {
	w := newWorld(t)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	build := task("a#build", "dist/**", "sub/dist/**")
	w.mustRun(build, "k", "", func() { w.put("a/dist/x", "x"); w.put("a/sub/dist/precious", "mine") })
	w.remove("a/dist", "a/sub")
	for _, l := range []string{"a/dist", "a/sub"} {
		if err := os.Symlink(outside, filepath.Join(w.root, l)); err != nil {
			t.Fatal(err)
		}
	}
	got := w.restore(build, "k")
	if _, err := os.Stat(filepath.Join(outside, "precious")); err != nil {
		t.Error("a file outside the workspace was removed")
	}
	if names, _ := os.ReadDir(outside); len(names) != 1 {
		t.Errorf("%s: something was written outside the workspace: %v", got, names)
	}
}

// TestLinksThatAreNotSaved: a folder that is a link has nothing of the
// project's, and a link out of the workspace leads later writes there.
func TestLinksThatAreNotSaved(t *testing.T) {
	outside := t.TempDir()
	for name, tc := range map[string]struct {
		outputs, at, to, want string
	}{
		"output folder":    {"dist/**", "a/dist", "../b/real", "a/dist is a link to a folder"},
		"absolute folder":  {"dist/**", "a/dist", outside, "a/dist is a link to a folder"},
		"to nothing":       {"dist/**", "a/dist", "../b/later", "a/dist is a link to a folder"},
		"above the output": {"out/dist/**", "a/out", "../b", "a/out is a link to a folder"},
		"wildcard":         {"dist-*/**", "a/dist-x", "../b/real", "a/dist-x is a link to a folder"},
		"absolute":         {"dist/**", "a/dist/l", "/etc/hostname", "a/dist/l is a link to /etc/hostname"},
		"out of it":        {"dist/**", "a/dist/l", "../../../x", "a/dist/l is a link to ../../../x"},
		"by another":       {"dist/**", "a/dist/l", "up/../../x", "a/dist/l is a link to up/../../x"},
		"to the root":      {"dist/**", "a/dist/l", "../../x", ""},
		"inside":           {"dist/**", "a/dist/l", "deep", ""},
		"a file":           {"latest.js", "a/latest.js", "../b/real/x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put("b/real/x", "x")
			w.put("b/dist/x", "x")
			build := task("a#build", tc.outputs)
			err := w.run(build, "k", "", func() {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(w.root, tc.at)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(tc.to, filepath.Join(w.root, tc.at)); err != nil {
					t.Fatal(err)
				}
			})
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				w.remove(tc.at)
				w.want(build, "k", "restored")
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("saved: %v; want %q", err, tc.want)
			}
			w.want(build, "k", "miss")
		})
	}
}

// TestOldEntriesWithSuchLinksAreMisses puts them into the store as they were.
func TestOldEntriesWithSuchLinksAreMisses(t *testing.T) {
	for _, l := range []entry.Link{
		{Path: "a/dist", Target: "../out/dist"},
		{Path: "a/dist", Target: "/tmp"},
		{Path: "a/dist/l", Target: "/etc/hostname"},
		{Path: "a/dist/l", Target: "../../../x"},
	} {
		w := newWorld(t)
		s, err := store.Open(w.dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		e := &entry.Entry{Key: keyOf("k"), Task: "a#build", Links: []entry.Link{l}, Log: entry.Content{Digest: digest.Of(nil), Inline: []byte{}}}
		if err := s.PutEntry(e.Key, e.Encode()); err != nil {
			t.Fatal(err)
		}
		w.want(task("a#build", "dist/**"), "k", "miss")
		if _, err := os.Lstat(filepath.Join(w.root, "a/dist")); err == nil {
			t.Errorf("%v was restored", l)
		}
	}
}

func TestOnlySuccessIsSaved(t *testing.T) {
	w := newWorld(t)
	build := task("a#build", "dist/**")
	err := w.open().Save(t.Context(), cache.Saving{Task: build, Key: keyOf("k"), Result: run.Result{Exit: 1}})
	if err == nil {
		t.Error("a failed task was saved")
	}
	w.want(build, "k", "miss")
}

func TestAdditiveTasksOwnWhatTheyAdded(t *testing.T) {
	w := newWorld(t)
	build, types := task("a#build", "dist/**"), task("a#types", "dist/**")
	types.Additive = true
	make := func() {
		w.mustRun(build, "b", "", func() { w.put("a/dist/x.js", "x") })
		w.mustRun(types, "t", "", func() { w.put("a/dist/types/x.d.ts", "types") })
	}
	make()
	want := tree(t, w.root)
	again := func(what, b, ty string) {
		t.Helper()
		w.close()
		w.want(build, "b", b)
		w.want(types, "t", ty)
		w.close()
		if got := tree(t, w.root); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
		}
	}
	again("nothing changed", "same", "same")
	w.remove("a/dist")
	again("all gone", "restored", "restored")
	again("restored before", "same", "same")
	w.remove("a/dist/types")
	again("what was added is gone", "same", "restored")
	w.put("a/dist/x.js", "y")
	again("what was there first changed", "restored", "restored")
	// The first one runs again; what the second added is not its own.
	w.mustRun(build, "b2", "", func() { w.put("a/dist/x.js", "x2") })
	w.remove("a/dist")
	w.want(build, "b2", "restored")
	if _, err := os.Stat(filepath.Join(w.root, "a/dist/types/x.d.ts")); err == nil {
		t.Error("an additive task's file was saved with its upstream's")
	}
	err := w.run(types, "t2", "", func() { w.remove("a/dist/x.js") })
	if err == nil {
		t.Error("an additive task that removed what it found was saved")
	}
}

func TestClean(t *testing.T) {
	w := newWorld(t)
	build, types := task("a#build", "dist/**"), task("a#types", "dist/**")
	types.Additive = true
	w.mustRun(build, "b", "", func() { w.put("a/dist/x.js", "x") })
	w.mustRun(types, "t", "", func() { w.put("a/dist/x.d.ts", "types") })
	if err := w.open().Clean(types); err != nil {
		t.Fatal(err)
	}
	if names, _ := os.ReadDir(filepath.Join(w.root, "a/dist")); len(names) != 1 {
		t.Errorf("after the additive task's cleaning: %v", names)
	}
	if err := w.open().Clean(build); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(w.root, "a/dist")); err == nil {
		t.Error("dist is still there")
	}
}

func TestDamageIsARepairedMiss(t *testing.T) {
	w := newWorld(t)
	build := task("a#build", "dist/**")
	fill := func() { w.put("a/dist/big.js", strings.Repeat("some content ", 5000)) }
	files := func() []string {
		var all []string
		_ = filepath.WalkDir(w.dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && (strings.Contains(p, "/blobs/") || strings.Contains(p, "/entries/")) {
				all = append(all, p)
			}
			return nil
		})
		return all
	}
	damage := map[string]func(p string, b []byte) error{
		"cut":     func(p string, b []byte) error { return os.WriteFile(p, b[:len(b)/2], 0o600) },
		"empty":   func(p string, _ []byte) error { return os.WriteFile(p, nil, 0o600) },
		"gone":    func(p string, _ []byte) error { return os.Remove(p) },
		"flipped": func(p string, b []byte) error { b[len(b)/2] ^= 1; return os.WriteFile(p, b, 0o600) },
		"longer":  func(p string, b []byte) error { return os.WriteFile(p, append(b, 'x'), 0o600) },
	}
	w.mustRun(build, "k", "", fill)
	want := tree(t, filepath.Join(w.root, "a"))
	n := len(files())
	if n != 2 {
		t.Fatalf("%d files in the cache", n)
	}
	for what, f := range damage {
		for i := range n {
			p := files()[i]
			b, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			if err := f(p, b); err != nil {
				t.Fatal(err)
			}
			w.close()
			w.remove("a/dist")
			w.put("a/dist/before", "stays when nothing can be restored")
			got := w.restore(build, "k")
			if got == "restored" && what != "longer" || got == "same" {
				t.Errorf("%s %s: %s", p, what, got)
			}
			if _, err := os.Stat(filepath.Join(w.root, "a/dist/before")); got != "restored" && err != nil {
				t.Errorf("%s %s: the tree was touched", p, what)
			}
			w.remove("a/dist")
			w.mustRun(build, "k", "", fill)
			w.close()
			w.remove("a/dist")
			w.want(build, "k", "restored")
			if got := tree(t, filepath.Join(w.root, "a")); got != want {
				t.Errorf("%s %s: not repaired:\n%s", p, what, got)
			}
		}
	}
	if len(w.warnings) > 0 {
		t.Errorf("damage is no error: %v", w.warnings)
	}
}
