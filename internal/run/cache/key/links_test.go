package key_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/cache/key"
)

// linked is a bench with links: to a file and a folder of the workspace, to what
// lies outside, in a circle, and to nothing.
func linked(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	put(t, b.root, "shared/x.ts", "x")
	put(t, b.root, "shared/dist/made", "ignored")
	put(t, b.root, "config.json", "{}")
	put(t, b.root, ".env", "A=1")
	outside := t.TempDir()
	put(t, outside, "f", "1")
	link(t, b.root, "a/config.json", "../config.json")
	link(t, b.root, "a/more", "../shared")
	link(t, b.root, "a/outside", filepath.Join(outside, "f"))
	link(t, b.root, "a/circle", ".")
	link(t, b.root, "a/nowhere", "gone")
	link(t, b.root, "a/.env", "../.env")
	link(t, b.root, "shared/again", "../a/more")
	git(t, b.root, "add", ".")
	b.task("a#only", func(d *run.Task) {
		d.DefaultInputs, d.Inputs = false, []string{"more/*.ts", ".env"}
	})
	b.task("a#not", func(d *run.Task) { d.Inputs = []string{"!more/**", "!circle/**"} })
	return b
}

func link(t *testing.T, root, name, to string) {
	t.Helper()
	name = filepath.Join(root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.Symlink(to, name)); err != nil {
		t.Fatal(err)
	}
}

// What a task reads through a link is its input.
func TestLinkedFilesCount(t *testing.T) {
	for name, c := range map[string]struct {
		change             func(t *testing.T, root string)
		build, only, never bool // whose keys change
	}{
		"a file":              {func(t *testing.T, root string) { put(t, root, "config.json", "{ }") }, true, false, true},
		"an ignored file":     {func(t *testing.T, root string) { put(t, root, ".env", "A=2") }, false, true, false},
		"in a folder":         {func(t *testing.T, root string) { put(t, root, "shared/x.ts", "y") }, true, true, false},
		"new in a folder":     {func(t *testing.T, root string) { put(t, root, "shared/deep/n.ts", "") }, true, false, false},
		"gone from a folder":  {func(t *testing.T, root string) { remove(t, root, "shared/x.ts") }, true, true, false},
		"ignored in a folder": {func(t *testing.T, root string) { put(t, root, "shared/dist/made", "again") }, false, false, false},
		"outside": {func(t *testing.T, root string) {
			to, err := os.Readlink(filepath.Join(root, "a/outside"))
			if err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Dir(to), "f", "2")
		}, false, false, false},
		"another target": {func(t *testing.T, root string) {
			put(t, root, "copy.json", "{}")
			remove(t, root, "a/config.json")
			link(t, root, "a/config.json", "../copy.json")
		}, true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := linked(t)
			keyOf := func(k *key.Keyer, name id.Task) run.Key {
				got, _, err := k.Key(t.Context(), b.tasks[name], map[id.Task]run.Key{"a#gen": "1", "b#build": "2"})
				if err != nil {
					t.Fatal(err)
				}
				return got
			}
			before := b.keyer(t)
			want := map[id.Task]bool{"a#build": c.build, "a#only": c.only, "a#not": c.never}
			was := map[id.Task]run.Key{}
			for name := range want {
				was[name] = keyOf(before, name)
			}
			c.change(t, b.root)
			after := b.keyer(t)
			for name, changes := range want {
				if changed := keyOf(after, name) != was[name]; changed != changes {
					t.Errorf("the key of %s changed: %t", name, changed)
				}
				if !changes {
					continue
				}
				if seen, err := before.Changed(t.Context(), b.tasks[name], time.Time{}); err != nil || seen == "" {
					t.Errorf("%s: the change is not seen before a save: %q, %v", name, seen, err)
				}
			}
		})
	}
}
