package cache_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/run"
	"brood/internal/run/cache"
)

// execute is what a run does for a task: it leaves the cache the result, or
// nothing when it does not save.
func (w *world) execute(t *run.Task, key string, f func()) {
	w.t.Helper()
	turn, _, err := w.open().Enter(w.t.Context(), t, func(id.Task) {})
	if err == nil {
		err = turn.Begin()
	}
	before, prepareErr := w.c.Prepare(t)
	if err := errors.Join(err, prepareErr); err != nil {
		w.t.Fatal(err)
	}
	f()
	err = w.c.Save(w.t.Context(), cache.Saving{Task: t, Key: keyOf(key), Turn: turn, Before: before, Result: run.Result{Began: time.Now(), Ended: time.Now()}})
	if err := errors.Join(err, turn.End()); err != nil {
		w.t.Fatal(err)
	}
}

func TestRunsOfAWorkspaceTakeTurns(t *testing.T) {
	w := newWorld(t)
	waits := make(chan bool, 1)
	cfg := w.cfg
	cfg.Dir, cfg.Root = w.dir, w.root
	other, err := cache.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	build := task("a#build", "dist/**")
	turn, waited, err := w.open().Enter(t.Context(), build, func(id.Task) {})
	if waited || err != nil {
		t.Fatal(waited, err)
	}
	for _, free := range []*run.Task{task("a#test", "coverage/**"), task("a#lint")} {
		turn, waited, err := other.Enter(t.Context(), free, func(id.Task) {})
		if err := errors.Join(err, turn.Begin(), turn.End()); waited || err != nil {
			t.Errorf("%s waited: %v, %v", free.ID, waited, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	group := life.NewGroup(t.Context())
	group.Go("cancels", func(context.Context) error {
		<-waits
		cancel()
		return nil
	})
	if _, waited, err := other.Enter(ctx, build, func(id.Task) { waits <- true }); !waited || !errors.Is(err, context.Canceled) {
		t.Errorf("another run entered: %v, %v", waited, err)
	}
	group.Go("ends", func(context.Context) error {
		<-waits
		return errors.Join(turn.Begin(), turn.End())
	})
	mine, waited, err := other.Enter(t.Context(), build, func(id.Task) { waits <- true })
	if err := errors.Join(err, group.Wait(), mine.Begin(), mine.End(), other.Close(t.Context())); !waited || err != nil {
		t.Errorf("the next one: waited %v, %v", waited, err)
	}
}

// TestAnotherRunWasFaster: it made what was looked up before and not found.
func TestAnotherRunWasFaster(t *testing.T) {
	w := newWorld(t)
	other := w.at(w.root)
	build, test := task("a#build", "dist/**"), task("a#test", "coverage/**")
	w.want(build, "1", "miss")
	w.want(test, "1", "miss")
	other.execute(build, "1", func() { other.put("a/dist/x", "1") })
	for of, want := range map[*run.Task]bool{build: true, test: false} {
		turn, taken, err := w.open().Enter(t.Context(), of, func(id.Task) {})
		if err := errors.Join(err, turn.End()); taken != want || err != nil {
			t.Errorf("%s: taken %v, %v", of.ID, taken, err)
		}
	}
	w.want(build, "1", "same")
}

// TestACacheThatCannotBeWrittenRestores: there are no turns, and hits are hits.
func TestACacheThatCannotBeWrittenRestores(t *testing.T) {
	w := newWorld(t)
	build := task("a#build", "dist/**")
	w.execute(build, "1", func() { w.put("a/dist/x", "1") })
	w.close()
	w.remove("a/dist")
	for _, name := range []string{"turns", "locks"} {
		dir := filepath.Join(w.dir, name)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir, nil, 0o400); err != nil { // where a folder belongs
			t.Fatal(err)
		}
	}
	w.want(build, "1", "restored")
	w.remove("a/dist")
	turn, taken, err := w.open().Enter(t.Context(), build, func(id.Task) {})
	if turn != nil || taken || err != nil {
		t.Errorf("%v, %v, %v", turn, taken, err)
	}
}

// TestStanding changes the outputs of a task after this run was done with it.
func TestStanding(t *testing.T) {
	build, file := task("a#build", "dist/**"), "a/dist/x"
	make1 := func(w *world) func() {
		return func() {
			w.put(file, "1")
			if err := os.Symlink("x", filepath.Join(w.root, "a/dist/l")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		meanwhile func(w *world)
		want      cache.Standing
	}{
		"nothing":   {func(*world) {}, cache.Standing{}},
		"read":      {func(w *world) { _ = tree(t, w.root) }, cache.Standing{}},
		"rewritten": {func(w *world) { w.put(file, "1") }, cache.Standing{}},
		"replaced":  {func(w *world) { w.remove(file); w.put(file, "1") }, cache.Standing{}},
		"changed":   {func(w *world) { w.put(file, "2") }, cache.Standing{Changed: file}},
		"removed":   {func(w *world) { w.remove(file) }, cache.Standing{Changed: file}},
		"link gone": {func(w *world) { w.remove("a/dist/l") }, cache.Standing{Changed: "a/dist/l"}},
		"mode": {func(w *world) {
			if err := os.Chmod(filepath.Join(w.root, file), 0o600); err != nil {
				t.Fatal(err)
			}
		}, cache.Standing{Changed: file}},
		"another run":    {func(w *world) { w.at(w.root).execute(build, "1", func() {}) }, cache.Standing{Foreign: true}},
		"another's task": {func(w *world) { w.at(w.root).execute(task("a#types", "types/**"), "1", func() {}) }, cache.Standing{}},
		"another run's restore": {func(w *world) {
			w.remove(file)
			w.at(w.root).want(build, "1", "restored")
		}, cache.Standing{Foreign: true}},
		"another run's hit": {func(w *world) { w.at(w.root).want(build, "1", "same") }, cache.Standing{}},
		"another run is at it": {func(w *world) {
			turn, _, err := w.at(w.root).open().Enter(t.Context(), build, func(id.Task) {})
			if err := errors.Join(err, turn.Begin()); err != nil {
				t.Fatal(err)
			}
		}, cache.Standing{Foreign: true}},
		"another workspace": {func(w *world) { w.at(t.TempDir()).execute(build, "1", func() {}) }, cache.Standing{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if got := w.open().Stands(build, nil, true); got != (cache.Standing{}) {
				t.Errorf("of what nobody made: %+v", got)
			}
			w.execute(build, "1", make1(w))
			c.meanwhile(w)
			if got := w.open().Stands(build, nil, true); got != c.want {
				t.Errorf("after it was executed: %+v, want %+v", got, c.want)
			}

			w = newWorld(t)
			w.execute(build, "1", make1(w))
			w.close()
			w.want(build, "1", "same")
			c.meanwhile(w)
			if got := w.open().Stands(build, nil, true); got != c.want {
				t.Errorf("after a hit: %+v, want %+v", got, c.want)
			}

			w = newWorld(t)
			w.execute(build, "1", make1(w))
			w.close()
			w.remove("a/dist")
			w.want(build, "1", "restored")
			c.meanwhile(w)
			if got := w.open().Stands(build, nil, true); got != c.want {
				t.Errorf("after a restore: %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestStandingBelowAnAdditiveTask: what this run's own tasks add to a result is
// no change of it.
func TestStandingBelowAnAdditiveTask(t *testing.T) {
	w := newWorld(t)
	build, minify := task("a#build", "dist/**"), task("a#minify", "dist/**")
	minify.Additive = true
	w.execute(build, "1", func() { w.put("a/dist/x", "1"); w.put("a/dist/y", "1") })
	turn, _, err := w.open().Enter(t.Context(), minify, func(id.Task) {})
	before, prepareErr := w.c.Prepare(minify)
	if err := errors.Join(err, prepareErr, turn.Begin()); err != nil {
		t.Fatal(err)
	}
	w.put("a/dist/x", "min")
	if got := w.c.Stands(build, minify, true); got != (cache.Standing{}) {
		t.Errorf("what the task itself did: %+v", got)
	}
	err = w.c.Save(t.Context(), cache.Saving{Task: minify, Key: keyOf("m"), Turn: turn, Before: before, Result: run.Result{Began: time.Now(), Ended: time.Now()}})
	if err := errors.Join(err, turn.End()); err != nil {
		t.Fatal(err)
	}
	for _, of := range []*run.Task{build, minify} {
		if got := w.c.Stands(of, nil, true); got != (cache.Standing{}) {
			t.Errorf("%s: %+v", of.ID, got)
		}
	}
	w.put("a/dist/x", "other")
	if got := w.c.Stands(minify, task("a#late", "dist/**"), true); got.Changed == "" {
		t.Error("who owns all that lies there may change what it works with")
	}
	if got := w.c.Stands(minify, nil, true); got.Changed != "a/dist/x" {
		t.Errorf("%+v", got)
	}
}

// TestATurnThatNobodyEnded: a run was killed while it wrote.
func TestATurnThatNobodyEnded(t *testing.T) {
	w := newWorld(t)
	build := task("a#build", "dist/**")
	w.execute(build, "1", func() { w.put("a/dist/x", "1") })
	w.close()
	turns, err := filepath.Glob(filepath.Join(w.dir, "turns", "*[0-9a-f]"))
	if err != nil || len(turns) != 1 {
		t.Fatal(turns, err)
	}
	if err := os.Truncate(turns[0], 3); err != nil {
		t.Fatal(err)
	}
	w.want(build, "1", "same")
	if got := w.c.Stands(build, nil, true); got != (cache.Standing{}) {
		t.Errorf("%+v", got)
	}
	if st, err := os.Stat(turns[0]); err != nil || st.Size()%2 != 0 {
		t.Errorf("somebody writes still: %v, %v", st.Size(), err)
	}
}
