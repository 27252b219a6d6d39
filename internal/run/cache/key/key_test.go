package key_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/cache/files"
	"brood/internal/run/cache/key"
	"brood/internal/run/cache/stamp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func git(t testing.TB, dir string, args ...string) {
	t.Helper()
	c := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@localhost"}, args...)...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

func put(t testing.TB, root, name, text string) {
	t.Helper()
	p := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// bench is what keys are computed from.
type bench struct {
	root    string
	tasks   map[id.Task]*run.Task
	globals run.Globals
	environ []string
	read    *key.Lockfile
}

func newBench(t testing.TB) *bench {
	b := &bench{root: t.TempDir(), tasks: map[id.Task]*run.Task{}, environ: []string{"NODE_ENV=test", "EMPTY="}}
	git(t, b.root, "init", "-q", "-b", "main")
	put(t, b.root, ".gitignore", "dist/\n.env*\n!.env.example\n*.gen.ts\n")
	put(t, b.root, "package-lock.json", "{}")
	put(t, b.root, "tsconfig.json", "{}")
	put(t, b.root, "a/package.json", `{"scripts":{"build":"tsc"}}`)
	put(t, b.root, "a/src/x.ts", "x")
	put(t, b.root, "a/README.md", "read me")
	put(t, b.root, "b/package.json", "{}")
	put(t, b.root, "b/src/y.ts", "y")
	git(t, b.root, "add", ".")
	git(t, b.root, "commit", "-qm", "one")
	b.globals = run.Globals{Env: []string{"NODE_ENV"}, Dependencies: []string{"tsconfig.json", "**/.env.*local", "cfg/**", "!**/*.md"}, EnvMode: "strict"}
	b.task("b#build", func(d *run.Task) { d.Outputs = []string{"*.js"} })
	b.task("a#gen", func(d *run.Task) { d.Outputs = []string{"src/generated/**"} })
	b.task("a#build", func(d *run.Task) {
		d.Deps = []id.Task{"a#gen", "b#build"}
		d.Env = []string{"API_*", "!API_SECRET", "EMPTY", "UNSET"}
		d.Outputs = []string{"dist/**", "out.js"}
	})
	b.task("a#docs", func(d *run.Task) {
		d.DefaultInputs, d.Inputs = false, []string{"*.md", "/tsconfig.json", ".env", "!CHANGES.md"}
	})
	return b
}

func (b *bench) task(name string, set func(*run.Task)) {
	p, short := id.Task(name).Split()
	t := &run.Task{ID: id.Task(name), Project: p, Name: short, Dir: string(p), Command: run.Command{Script: short},
		Definition: run.Definition{Cache: true, DefaultInputs: true}}
	set(t)
	b.tasks[t.ID] = t
}

func (b *bench) keyer(t testing.TB) *key.Keyer {
	t.Helper()
	s, err := files.Read(t.Context(), files.Config{Root: b.root})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	k, err := key.New(t.Context(), key.Config{Files: s, Lockfile: "package-lock.json", Read: b.read, Manager: run.Manager{Name: "npm", Version: "10"},
		Globals: b.globals, Environ: b.environ, Task: func(n id.Task) *run.Task { return b.tasks[n] },
		Beside: func(p id.Project) (all []*run.Task) {
			for _, t := range b.tasks {
				if t.Project == p {
					all = append(all, t)
				}
			}
			return all
		}})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (b *bench) keys(t testing.TB) map[id.Task]*key.Parts {
	t.Helper()
	k := b.keyer(t)
	keys, all := map[id.Task]run.Key{}, map[id.Task]*key.Parts{}
	for _, name := range []id.Task{"b#build", "a#gen", "a#build", "a#docs"} {
		key, parts, err := k.Key(t.Context(), b.tasks[name], keys)
		if err != nil {
			t.Fatal(err)
		}
		keys[name], all[name] = key, parts
		for _, g := range parts.Groups {
			for i := 1; i < len(g.Items); i++ {
				if g.Items[i-1].Name >= g.Items[i].Name {
					t.Errorf("%s: %s follows %s among its %s", name, g.Items[i].Name, g.Items[i-1].Name, g.Name)
				}
			}
		}
	}
	return all
}

func TestKeysAreEqualEverywhere(t *testing.T) {
	b := newBench(t)
	want := b.keys(t)
	old := time.Now().Add(-time.Hour)
	same := func(what string) {
		t.Helper()
		for name, p := range b.keys(t) {
			if p.Key != want[name].Key {
				t.Errorf("%s: %s has another key: %+v", what, name, key.Diff(want[name], p))
			}
		}
	}
	same("again")
	_ = filepath.WalkDir(b.root, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.Contains(p, ".git/") {
			return os.Chtimes(p, old, old)
		}
		return err
	})
	same("touched")
	git(t, b.root, "update-index", "--refresh")
	same("from the index")
	put(t, b.root, "a/dist/x.js", "an output that git ignores")
	put(t, b.root, "b/out.js", "an output that git does not ignore")
	put(t, b.root, "a/src/generated/y.ts", "an output of a task before it")
	put(t, b.root, "a/node_modules/.bin/x", "x")
	put(t, b.root, "a/src/z.gen.ts", "ignored")
	b.environ = append(b.environ, "OTHER=1", "HOME=/home/somebody", "API_SECRET=s")
	slices.Reverse(b.environ)
	same("outputs and other variables")
	clone := filepath.Join(t.TempDir(), "deep", "er")
	git(t, b.root, "clone", "-q", b.root, clone)
	b.root = clone
	same("clone")
	b.tasks["a#build"].Deps = []id.Task{"b#build", "a#gen"}
	b.tasks["a#build"].Timeout, b.tasks["a#build"].Retries, b.tasks["a#build"].CPU = time.Hour, 3, 2
	same("what has no place in keys")
}

func TestEveryInputCounts(t *testing.T) {
	// Which tasks a change concerns, and what Diff says of a#build or a#docs.
	for name, tc := range map[string]struct {
		change func(t *testing.T, b *bench)
		hits   string // tasks whose keys change
		says   string // group and name
	}{
		"content":  {func(t *testing.T, b *bench) { put(t, b.root, "a/src/x.ts", "X") }, "a#build a#gen", "files a/src/x.ts"},
		"upstream": {func(t *testing.T, b *bench) { put(t, b.root, "b/src/y.ts", "Y") }, "a#build b#build", "dependencies b#build"},
		"new":      {func(t *testing.T, b *bench) { put(t, b.root, "a/src/n.ts", "n") }, "a#build a#gen", "files a/src/n.ts"},
		"gone":     {func(t *testing.T, b *bench) { _ = os.Remove(filepath.Join(b.root, "a/src/x.ts")) }, "a#build a#gen", "files a/src/x.ts"},
		"mode":     {func(t *testing.T, b *bench) { _ = os.Chmod(filepath.Join(b.root, "a/src/x.ts"), 0o755) }, "a#build a#gen", "files a/src/x.ts"},
		"script":   {func(t *testing.T, b *bench) { put(t, b.root, "a/package.json", "{ }") }, "a#build a#docs a#gen", "files a/package.json"},
		"renamed": {func(t *testing.T, b *bench) {
			_ = os.Rename(filepath.Join(b.root, "a/src/x.ts"), filepath.Join(b.root, "a/src/x2.ts"))
		}, "a#build a#gen", "files a/src/x.ts"},
		"lockfile":        {func(t *testing.T, b *bench) { put(t, b.root, "package-lock.json", "{ }") }, "a#build a#docs a#gen b#build", "lockfile package-lock.json"},
		"global file":     {func(t *testing.T, b *bench) { put(t, b.root, "tsconfig.json", "{ }") }, "a#build a#docs a#gen b#build", "workspace tsconfig.json"},
		"ignored, global": {func(t *testing.T, b *bench) { put(t, b.root, "b/.env.dev.local", "x=1") }, "a#build a#docs a#gen b#build", "workspace b/.env.dev.local"},
		"ignored, named":  {func(t *testing.T, b *bench) { put(t, b.root, "a/.env", "x=1") }, "a#docs", "files a/.env"},
		"documents":       {func(t *testing.T, b *bench) { put(t, b.root, "a/README.md", "no") }, "a#build a#docs a#gen", "files a/README.md"},
		"taken back":      {func(t *testing.T, b *bench) { put(t, b.root, "a/CHANGES.md", "no") }, "a#build a#gen", "files a/CHANGES.md"},
		"global variable": {func(t *testing.T, b *bench) { b.environ[0] = "NODE_ENV=production" }, "a#build a#docs a#gen b#build", "workspace variable NODE_ENV"},
		"wildcard":        {func(t *testing.T, b *bench) { b.environ = append(b.environ, "API_URL=x") }, "a#build", "environment API_URL"},
		"unset to empty":  {func(t *testing.T, b *bench) { b.environ = append(b.environ, "UNSET=") }, "a#build", "environment UNSET"},
		"empty to unset":  {func(t *testing.T, b *bench) { b.environ = b.environ[:1] }, "a#build", "environment EMPTY"},
		"arguments":       {func(t *testing.T, b *bench) { b.tasks["a#build"].Args = []string{"--x", ""} }, "a#build", "task arguments"},
		"outputs":         {func(t *testing.T, b *bench) { b.tasks["a#build"].Outputs = []string{"dist/**"} }, "a#build", "task outputs"},
		"define":          {func(t *testing.T, b *bench) { b.tasks["a#build"].Define = map[string]string{"A": "1"} }, "a#build", "task define A"},
		"platform":        {func(t *testing.T, b *bench) { b.tasks["a#build"].Platform = "linux/arm64" }, "a#build", "task platform"},
		"mode of env":     {func(t *testing.T, b *bench) { b.globals.EnvMode = "loose" }, "a#build a#docs a#gen b#build", "workspace field envMode"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			before := b.keys(t)
			tc.change(t, b)
			after := b.keys(t)
			var hits []string
			for n := range after {
				if after[n].Key != before[n].Key {
					hits = append(hits, string(n))
				}
			}
			slices.Sort(hits)
			if got := strings.Join(hits, " "); got != tc.hits {
				t.Errorf("keys changed: %s, want %s", got, tc.hits)
			}
			who := id.Task("a#build")
			if !strings.Contains(tc.hits, "a#build") {
				who = "a#docs"
			}
			diff := key.Diff(before[who], after[who])
			if !slices.ContainsFunc(diff, func(c key.Change) bool { return c.Group+" "+c.Name == tc.says }) {
				t.Errorf("Diff does not say %q: %+v", tc.says, diff)
			}
		})
	}
}

// TestEveryFieldCounts fails when Definition gets a field that keys forget.
func TestEveryFieldCounts(t *testing.T) {
	b := newBench(t)
	task := b.tasks["b#build"]
	want := b.keys(t)["b#build"].Key
	v := reflect.ValueOf(&task.Definition).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		old := reflect.ValueOf(v.Field(i).Interface())
		switch v.Field(i).Kind() {
		case reflect.Bool:
			v.Field(i).SetBool(!v.Field(i).Bool())
		case reflect.String:
			v.Field(i).SetString("x")
		case reflect.Slice:
			v.Field(i).Set(reflect.ValueOf([]string{"src/x"}))
		case reflect.Map:
			v.Field(i).Set(reflect.ValueOf(map[string]string{"x": "y"}))
		case reflect.Int, reflect.Int64:
			v.Field(i).SetInt(7)
		case reflect.Float64:
			v.Field(i).SetFloat(7)
		default:
			t.Fatalf("field %s is of a kind this test does not know", f.Name)
		}
		if changed := b.keys(t)["b#build"].Key != want; changed == (f.Tag.Get("json") == "-") {
			t.Errorf("field %s: key changed %v, its JSON tag is %q", f.Name, changed, f.Tag.Get("json"))
		}
		v.Field(i).Set(old)
	}
}

func TestEditsDuringARunAreSeen(t *testing.T) {
	for name, tc := range map[string]struct {
		task   id.Task
		change func(t *testing.T, root string)
		want   string
	}{
		"nothing": {"a#build", func(*testing.T, string) {}, ""},
		"its own outputs": {"a#build", func(t *testing.T, root string) {
			put(t, root, "a/dist/x", "x")
			put(t, root, "a/out.js", "x")
			put(t, root, "a/src/generated/x.ts", "x")
			put(t, root, "a/node_modules/.cache/x", "x")
			put(t, root, "a/src/x.gen.ts", "ignored")
		}, ""},
		"the same again":  {"a#build", func(t *testing.T, root string) { put(t, root, "a/src/x.ts", "x") }, ""},
		"another project": {"a#build", func(t *testing.T, root string) { put(t, root, "b/src/y.ts", "Y") }, ""},
		"an edit":         {"a#build", func(t *testing.T, root string) { put(t, root, "a/src/x.ts", "y") }, "a/src/x.ts"},
		"a new one":       {"a#build", func(t *testing.T, root string) { put(t, root, "a/src/deep/n.ts", "n") }, "a/src/deep/n.ts"},
		"one less":        {"a#build", func(t *testing.T, root string) { _ = os.Remove(filepath.Join(root, "a/src/x.ts")) }, "a/src/x.ts"},
		"lockfile":        {"a#build", func(t *testing.T, root string) { put(t, root, "package-lock.json", "{ }") }, "package-lock.json"},
		"global":          {"a#build", func(t *testing.T, root string) { put(t, root, "tsconfig.json", "{ }") }, "tsconfig.json"},
		"a new global":    {"a#build", func(t *testing.T, root string) { put(t, root, "cfg/deep/new", "") }, "cfg/deep/new"},
		"an ignored one":  {"a#build", func(t *testing.T, root string) { put(t, root, "b/src/.env.x.local", "") }, "b/src/.env.x.local"},
		"not a global":    {"a#build", func(t *testing.T, root string) { put(t, root, "cfg/deep/new.md", ""); put(t, root, "b/.env.x", "") }, ""},
		"named":           {"a#docs", func(t *testing.T, root string) { put(t, root, "a/.env", "x") }, "a/.env"},
		"not meant":       {"a#docs", func(t *testing.T, root string) { put(t, root, "a/src/x.ts", "y"); put(t, root, "a/CHANGES.md", "c") }, ""},
		"meant":           {"a#docs", func(t *testing.T, root string) { put(t, root, "a/NEWS.md", "x") }, "a/NEWS.md"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			k := b.keyer(t)
			task := b.tasks[tc.task]
			if _, _, err := k.Key(t.Context(), task, map[id.Task]run.Key{"a#gen": "1", "b#build": "2"}); err != nil {
				t.Fatal(err)
			}
			tc.change(t, b.root)
			got, err := k.Changed(t.Context(), task, time.Time{})
			if err == nil && got == "" {
				got, err = k.Grown(task, 0) // the first look is always taken
			}
			if err != nil || got != tc.want {
				t.Errorf("changed %q, %v; want %q", got, err, tc.want)
			}
			if got, err := k.Grown(task, 0); err != nil || got != "" {
				t.Errorf("a look that takes too long was taken: %q, %v", got, err)
			}
		})
	}
}

// What a task writes itself, or another of the project, is no source of the task
// that it works with.
func TestSourcesUnderATask(t *testing.T) {
	b := newBench(t)
	b.task("b#test", func(d *run.Task) { d.Deps, d.Outputs = []id.Task{"b#build"}, []string{"coverage/**"} })
	b.task("b#e2e", func(d *run.Task) { d.Outputs = []string{"report/**"} })
	put(t, b.root, "b/coverage/old", "1")
	k := b.keyer(t)
	build, test := b.tasks["b#build"], b.tasks["b#test"]
	if _, _, err := k.Key(t.Context(), build, nil); err != nil {
		t.Fatal(err)
	}
	put(t, b.root, "b/coverage/old", "2")
	put(t, b.root, "b/coverage/new", "")
	put(t, b.root, "b/report/new", "")
	if got, err := k.ChangedUnder(t.Context(), build, test, time.Now()); err != nil || got != "" {
		t.Errorf("outputs: %q, %v", got, err)
	}
	if got, err := k.Changed(t.Context(), build, time.Now()); err != nil || got == "" {
		t.Errorf("inputs of its own: %q, %v", got, err)
	}
	k = b.keyer(t)
	if _, _, err := k.Key(t.Context(), build, nil); err != nil {
		t.Fatal(err)
	}
	put(t, b.root, "b/coverage/old", "2")
	if got, err := k.Changed(t.Context(), build, time.Now()); err != nil || got != "" {
		t.Errorf("another task's output as it was: %q, %v", got, err)
	}
	put(t, b.root, "b/src/y.ts", "another")
	if got, err := k.ChangedUnder(t.Context(), build, test, time.Now()); err != nil || got != "b/src/y.ts" {
		t.Errorf("a source: %q, %v", got, err)
	}
}

// TestInputsThatChangedAndChangedBack: the command may have read what was there
// in between.
func TestInputsThatChangedAndChangedBack(t *testing.T) {
	b := newBench(t)
	put(t, b.root, "a/src/generated/g.ts", "g")
	git(t, b.root, "add", ".")
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{"a/src/x.ts", "a/src/generated/g.ts"} {
		if err := os.Chtimes(filepath.Join(b.root, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	k := b.keyer(t)
	task := b.tasks["a#build"]
	if _, _, err := k.Key(t.Context(), task, map[id.Task]run.Key{"a#gen": "1", "b#build": "2"}); err != nil {
		t.Fatal(err)
	}
	ask := func(when string, began time.Time, want string) {
		t.Helper()
		if got, err := k.Changed(t.Context(), task, began); err != nil || got != want {
			t.Errorf("%s: changed %q, %v; want %q", when, got, err, want)
		}
	}
	began := time.Now()
	ask("before", began, "")
	put(t, b.root, "a/src/generated/g.ts", "g")
	ask("a committed output", began, "")
	put(t, b.root, "a/src/x.ts", "y")
	put(t, b.root, "a/src/x.ts", "x")
	ask("back again", began, "a/src/x.ts")
	ask("an attempt that began later", time.Now().Add(time.Minute), "")
	ask("contents alone", time.Time{}, "")
	put(t, b.root, "a/src/generated/g.ts", "formatted")
	ask("a committed output with another content", time.Now().Add(time.Minute), "a/src/generated/g.ts")
}

// TestInputsThatCameAndWent: what the command may have read need not be there
// any more.
func TestInputsThatCameAndWent(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(root string)
		want      string
	}{
		"nothing":   {func(string) {}, ""},
		"a file":    {func(root string) { put(t, root, "a/src/new.ts", "new"); remove(t, root, "a/src/new.ts") }, "a/src/"},
		"a folder":  {func(root string) { put(t, root, "a/src/deep/new.ts", "new"); remove(t, root, "a/src/deep") }, "a/src/"},
		"an output": {func(root string) { put(t, root, "a/src/generated/y.ts", "made") }, ""},
		"ignored":   {func(root string) { put(t, root, "a/src/z.gen.ts", "made") }, ""},
		"both": {func(root string) {
			put(t, root, "a/src/z.gen.ts", "made")
			put(t, root, "a/src/n.ts", "")
			remove(t, root, "a/src/n.ts")
		}, ""},
		"in the project's own folder": {func(root string) { put(t, root, "a/tmp.mjs", ""); remove(t, root, "a/tmp.mjs") }, ""},
		"an output's folder":          {func(root string) { put(t, root, "a/dist/x", ""); remove(t, root, "a/dist/x") }, ""},
		"a folder that was away": {func(root string) {
			away := filepath.Join(root, "away")
			if err := errors.Join(os.Rename(filepath.Join(root, "a/src"), away), os.Rename(away, filepath.Join(root, "a/src"))); err != nil {
				t.Fatal(err)
			}
		}, "a/src/"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			k := b.keyer(t)
			task := b.tasks["a#build"]
			if _, _, err := k.Key(t.Context(), task, map[id.Task]run.Key{"a#gen": "1", "b#build": "2"}); err != nil {
				t.Fatal(err)
			}
			began := time.Now().Add(2 * stamp.Granule) // the bench was made just now
			for !time.Now().After(began) {
				runtime.Gosched()
			}
			c.meanwhile(b.root)
			if got, err := k.Changed(t.Context(), task, began); err != nil || got != c.want {
				t.Errorf("changed %q, %v; want %q", got, err, c.want)
			}
			if got, err := k.Changed(t.Context(), task, time.Time{}); err != nil || got != "" {
				t.Errorf("by contents alone: %q, %v", got, err)
			}
		})
	}
}

func remove(t *testing.T, root, name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
		t.Fatal(err)
	}
}

func TestCommittedOutputsAreInputs(t *testing.T) {
	b := newBench(t)
	b.task("b#build", func(d *run.Task) { d.Outputs = []string{"src/**"} })
	before := b.keys(t)["b#build"].Key
	put(t, b.root, "b/src/new.ts", "made by the task")
	if b.keys(t)["b#build"].Key != before {
		t.Error("an output is an input")
	}
	put(t, b.root, "b/src/y.ts", "a source, though the globs say output")
	if b.keys(t)["b#build"].Key == before {
		t.Error("a committed file changed and the key did not")
	}
}

// What a task makes that is not cached no key stands for: whoever works with it
// has it as an input.
func TestOutputsOfWhatIsNotCachedAreInputs(t *testing.T) {
	for _, cached := range []bool{true, false} {
		b := newBench(t)
		b.tasks["a#gen"].Cache = cached
		put(t, b.root, "a/src/generated/g.ts", "1")
		before := b.keys(t)
		put(t, b.root, "a/src/generated/g.ts", "2")
		after := b.keys(t)
		for name, want := range map[id.Task]bool{"a#build": cached, "a#gen": true} {
			if same := before[name].Key == after[name].Key; same != want {
				t.Errorf("cached %t: the key of %s is the same: %t", cached, name, same)
			}
		}
	}
}

func TestOnlyTheLockfilesPartOfAProjectCounts(t *testing.T) {
	b := newBench(t)
	lock := func(a, dev string) {
		put(t, b.root, "package-lock.json", `{"lockfileVersion":3,"packages":{"":{"devDependencies":{"ts":"1"}},"a":{"dependencies":{"x":"1"}},"b":{},
			"node_modules/x":{"version":"`+a+`"},"node_modules/ts":{"version":"`+dev+`"}}}`)
	}
	lock("1", "1")
	before := b.keys(t)
	lock("2", "1")
	after := b.keys(t)
	if after["b#build"].Key != before["b#build"].Key || after["a#gen"].Key == before["a#gen"].Key {
		t.Error("a package of a project counts for it alone")
	}
	diff := key.Diff(before["a#gen"], after["a#gen"])
	if len(diff) != 1 || diff[0].Group != key.LockGroup || diff[0].Name != "node_modules/x" {
		t.Errorf("diff %+v", diff)
	}
	lock("2", "2")
	if last := b.keys(t); last["b#build"].Key == after["b#build"].Key {
		t.Error("a package of the root counts for all")
	}
}

// A lockfile that was read before the files were is the one that keys are made
// of only when it did not change in between.
func TestALockfileReadBeforehand(t *testing.T) {
	b := newBench(t)
	lock := func(version string) {
		put(t, b.root, "package-lock.json", `{"lockfileVersion":3,"packages":{"":{},"a":{"dependencies":{"x":"1"}},"b":{},"node_modules/x":{"version":"`+version+`"}}}`)
	}
	for _, old := range []bool{false, true} { // written just now, or long before
		lock("1")
		if old {
			when := time.Now().Add(-time.Hour)
			if err := os.Chtimes(filepath.Join(b.root, "package-lock.json"), when, when); err != nil {
				t.Fatal(err)
			}
		}
		b.read = nil
		want := b.keys(t)["a#build"].Key
		b.read = key.ReadLockfile(b.root, "package-lock.json")
		if got := b.keys(t)["a#build"].Key; got != want {
			t.Errorf("read beforehand: %s, want %s", got, want)
		}
		lock("2")
		got := b.keys(t)["a#build"].Key
		b.read = nil
		if now := b.keys(t)["a#build"].Key; got != now || got == want {
			t.Errorf("changed since it was read: %s, want %s", got, now)
		}
	}
	b.read = key.ReadLockfile(b.root, "no-such.json")
	if b.keys(t)["a#build"].Key == "" {
		t.Error("a lockfile that could not be read is read again")
	}
}

func TestProjectsThatEnterEveryKey(t *testing.T) {
	b := newBench(t)
	b.globals.Projects = []string{"b"}
	before := b.keys(t)
	put(t, b.root, "b/src/y.ts", "Y")
	if after := b.keys(t); after["a#docs"].Key == before["a#docs"].Key {
		t.Error("a file of a project that enters every key changed")
	}
}

// benchmark makes packages of ten files each and three or ten tasks.
func benchmark(b *testing.B, packages, tasks int) {
	root := b.TempDir()
	git(b, root, "init", "-q")
	put(b, root, ".gitignore", "node_modules\ndist\n")
	var all []*run.Task
	byID := map[id.Task]*run.Task{}
	for p := range packages {
		dir := fmt.Sprintf("packages/p%04d", p)
		put(b, root, dir+"/package.json", fmt.Sprintf(`{"name":"p%04d"}`, p))
		for f := range 9 {
			put(b, root, fmt.Sprintf("%s/src/file%d.ts", dir, f), fmt.Sprintf("export const x = %d\n", p*10+f))
		}
		for n := range tasks {
			t := &run.Task{Project: id.Project(fmt.Sprintf("p%04d", p)), Name: fmt.Sprintf("task%d", n), Dir: dir, Command: run.Command{Script: "build"},
				Definition: run.Definition{Cache: true, DefaultInputs: true, Outputs: []string{"dist/**"}, Env: []string{"NODE_ENV", "NEXT_PUBLIC_*"}}}
			t.ID = id.TaskOf(t.Project, t.Name)
			for d := max(0, p-3); d < p; d++ {
				t.Deps = append(t.Deps, id.Task(fmt.Sprintf("p%04d#task%d", d, n)))
			}
			all = append(all, t)
			byID[t.ID] = t
		}
	}
	git(b, root, "add", ".")
	git(b, root, "commit", "-qm", "x")
	old := time.Now().Add(-time.Hour)
	_ = filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.Contains(p, ".git/") {
			return os.Chtimes(p, old, old)
		}
		return err
	})
	git(b, root, "update-index", "--refresh")
	b.Run("git status", func(b *testing.B) {
		for b.Loop() {
			git(b, root, "status", "--porcelain=v2", "-z", "-uall")
		}
	})
	var s *files.Snapshot
	b.Run("files", func(b *testing.B) {
		for b.Loop() {
			var err error
			if s, err = files.Read(b.Context(), files.Config{Root: root}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("keys", func(b *testing.B) {
		for b.Loop() {
			k, err := key.New(b.Context(), key.Config{Files: s, Environ: os.Environ(), Task: func(n id.Task) *run.Task { return byID[n] }})
			if err != nil {
				b.Fatal(err)
			}
			keys := make(map[id.Task]run.Key, len(all))
			for _, t := range all {
				if keys[t.ID], _, err = k.Key(b.Context(), t, keys); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

func BenchmarkThreeThousandTasks(b *testing.B) { benchmark(b, 1000, 3) }

func BenchmarkTenThousandTasks(b *testing.B) { benchmark(b, 1000, 10) }
