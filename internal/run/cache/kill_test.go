package cache_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/run"
	"brood/internal/run/cache"
)

// fill writes what version v of the child's task makes.
func fill(root string, v int) error {
	for i := range 20 {
		p := filepath.Join(root, "a/dist", fmt.Sprintf("f%d", i), "x.js")
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		text := fmt.Sprintf("version %d file %d\n", v, i)
		if err := os.WriteFile(p, []byte(strings.Repeat(text, 1+i*400)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// versions is how many results the child alternates between.
const versions = 4

// child saves and restores in the folder until it is killed.
func child(dir string) {
	ctx := context.Background()
	t := task("a#build", "dist/**")
	for n := 0; ; n++ {
		root := filepath.Join(dir, "root")
		c, err := cache.Open(ctx, cache.Config{Dir: filepath.Join(dir, "cache"), Root: root, MaxBytes: 300_000,
			Stamps: cache.Stamps(filepath.Join(dir, "cache"), root), Local: cache.Access{Read: true, Write: true}})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		for range 5 {
			v := rand.IntN(versions)
			if h, ok := c.Lookup(ctx, t, keyOf(fmt.Sprint(v))); ok {
				if _, err := h.Restore(ctx, func(id.Task) {}); err == nil {
					continue
				}
			}
			_ = os.RemoveAll(filepath.Join(root, "a/dist"))
			if err := fill(root, v); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			_ = c.Save(ctx, cache.Saving{Task: t, Key: keyOf(fmt.Sprint(v)), Result: run.Result{Began: time.Now(), Ended: time.Now()}})
		}
		if err := c.Close(ctx); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		if n == 0 {
			fmt.Println("one round is done")
		}
	}
}

// TestKilledAtAnyMoment kills a process that saves, restores and sweeps, many
// times, and looks whether what is left gives right results or misses.
func TestKilledAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(t)
	w.root, w.dir = filepath.Join(dir, "root"), filepath.Join(dir, "cache")
	w.put("a/src.ts", "source")
	want := map[int]string{}
	for v := range versions {
		root := t.TempDir()
		if err := fill(root, v); err != nil {
			t.Fatal(err)
		}
		want[v] = tree(t, filepath.Join(root, "a/dist"))
	}
	build := task("a#build", "dist/**")
	hits := 0
	for round := range 15 {
		c := exec.Command(os.Args[0], "-test.run", "^$")
		c.Env = append(os.Environ(), "CACHE_TEST_CHILD="+dir)
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 100)); err != nil { // it has begun
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(rand.IntN(250))*time.Millisecond, func() { _ = c.Process.Kill() })
		if err := c.Wait(); err == nil || c.ProcessState.ExitCode() >= 0 {
			t.Fatalf("the child ended by itself: %v", c.ProcessState)
		}
		for v := range versions {
			switch got := w.restore(build, fmt.Sprint(v)); got {
			case "miss":
			case "restored", "same":
				hits++
				if now := tree(t, filepath.Join(w.root, "a/dist")); now != want[v] {
					t.Fatalf("round %d, version %d, %s:\n%s\nwant\n%s", round, v, got, now, want[v])
				}
			default:
				t.Errorf("round %d, version %d: %s", round, v, got)
			}
		}
		w.close()
		if names, _ := os.ReadDir(filepath.Join(w.root, ".brood/stage")); len(names) > 1 {
			t.Errorf("round %d: dead processes leave their stages: %v", round, names)
		}
	}
	if hits == 0 {
		t.Error("no kill came late enough for a hit: nothing was tested")
	}
}

// TestTwoRunsAtOnce lets several caches save and restore in one workspace and
// in several, over one store that is always too small.
func TestTwoRunsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.cfg.MaxBytes = 200_000
	build := task("a#build", "dist/**")
	want := map[int]string{}
	for v := range versions {
		root := t.TempDir()
		if err := fill(root, v); err != nil {
			t.Fatal(err)
		}
		want[v] = tree(t, filepath.Join(root, "a/dist"))
	}
	roots := []string{t.TempDir(), t.TempDir(), t.TempDir(), w.root, w.root}
	fails := life.Each(t.Context(), len(roots), len(roots), func(ctx context.Context, i int) error {
		root := roots[i]
		for n := range 8 {
			c, err := cache.Open(ctx, cache.Config{Dir: w.dir, Root: root, MaxBytes: w.cfg.MaxBytes, Stamps: cache.Stamps(w.dir, root),
				Local: cache.Access{Read: true, Write: true}, Warn: func(err error) { t.Error(err) }})
			if err != nil {
				return err
			}
			v := (i + n) % versions
			if root == w.root {
				v = 0 // two that share a tree do the same
			}
			key := keyOf(fmt.Sprint(v))
			h, ok := c.Lookup(ctx, build, key)
			if ok {
				_, err = h.Restore(ctx, func(id.Task) {})
			}
			if (!ok || err != nil) && root != w.root {
				if err := fill(root, v); err != nil {
					return err
				}
				if err := c.Save(ctx, cache.Saving{Task: build, Key: key, Result: run.Result{Began: time.Now(), Ended: time.Now()}}); err != nil {
					return err
				}
			}
			if ok && err == nil && root != w.root {
				if now := tree(t, filepath.Join(root, "a/dist")); now != want[v] {
					t.Errorf("%s, version %d:\n%s\nwant\n%s", root, v, now, want[v])
				}
			}
			if err := c.Close(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	for _, err := range fails {
		if err != nil {
			t.Error(err)
		}
	}
	w.put("a/dist/x", "x")
	if got := w.restore(build, "0"); got == "restored" {
		if now := tree(t, filepath.Join(w.root, "a/dist")); now != want[0] {
			t.Errorf("the shared tree:\n%s\nwant\n%s", now, want[0])
		}
	} else if got != "miss" {
		t.Error(got)
	}
}
