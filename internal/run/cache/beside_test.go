package cache_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/run"
	"brood/internal/run/cache/stamp"
)

// beside is a world with two tasks that write into one folder and do not wait
// for each other.
func beside(t *testing.T) (w *world, cjs, esm *run.Task) {
	t.Helper()
	w = newWorld(t)
	cjs, esm = task("a#cjs", "dist/**"), task("a#esm", "dist/**")
	w.cfg.Beside = func(t id.Task) []id.Task {
		return map[id.Task][]id.Task{cjs.ID: {esm.ID}, esm.ID: {cjs.ID}}[t]
	}
	return w, cjs, esm
}

// text is a file's, "" for none.
func (w *world) text(name string) string {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.root, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	return string(b)
}

// Neither takes away what the other made, in whatever order they are restored,
// in one run or in two, and a result has what its own task made.
func TestTasksThatWriteTheSameFolder(t *testing.T) {
	w, cjs, esm := beside(t)
	w.mustRun(cjs, "c1", "", func() { w.put("a/dist/x.cjs", "c1"); w.put("a/dist/x.map", "c1") })
	w.mustRun(esm, "e1", "", func() { w.put("a/dist/x.mjs", "e1") })
	w.close()
	w.mustRun(esm, "e2", "", func() { w.put("a/dist/x.mjs", "e2") }) // a run of its own
	look := func(when, c, e string) {
		t.Helper()
		if got := [3]string{w.text("a/dist/x.cjs"), w.text("a/dist/x.map"), w.text("a/dist/x.mjs")}; got != [3]string{c, c, e} {
			t.Errorf("%s: %q", when, got)
		}
	}
	look("both ran", "c1", "e2")
	w.want(cjs, "c1", "same")
	look("the first is a hit", "c1", "e2")
	for _, order := range [][]*run.Task{{cjs, esm}, {esm, cjs}} {
		w.close()
		w.remove("a/dist")
		for _, one := range order {
			w.want(one, map[id.Task]string{cjs.ID: "c1", esm.ID: "e2"}[one.ID], "restored")
		}
		look("restored", "c1", "e2")
	}
	// Elsewhere nobody knows what is whose.
	other := w.at(t.TempDir())
	other.want(esm, "e2", "restored")
	other.want(cjs, "c1", "restored")
	other.want(esm, "e1", "restored")
	if got := other.text("a/dist/x.mjs") + other.text("a/dist/x.cjs"); got != "e1c1" {
		t.Errorf("elsewhere: %q", got)
	}
}

// A tool that finds what it made last time right writes nothing: its result has
// it all the same. Of what brood did not see made nobody knows whose it is.
func TestWhatIsRightAlreadyIsPartOfAResult(t *testing.T) {
	w, cjs, esm := beside(t)
	w.put("a/dist/x.cjs", "c") // made before
	if err := w.run(cjs, "c1", "", func() {}); !errs.Is(err, errs.FailedPrecondition) || !strings.Contains(err.Error(), "a/dist/x.cjs lay there before") {
		t.Errorf("what may be another's: %v", err)
	}
	w.remove("a/dist")
	w.mustRun(cjs, "c1", "", func() { w.put("a/dist/x.cjs", "c") })
	w.mustRun(esm, "e1", "", func() { w.put("a/dist/x.mjs", "e") })
	w.mustRun(esm, "e2", "", func() {})
	w.close()
	w.remove("a/dist")
	w.want(cjs, "c1", "restored")
	w.want(esm, "e2", "restored")
	if got := w.text("a/dist/x.cjs") + w.text("a/dist/x.mjs"); got != "ce" {
		t.Errorf("%q", got)
	}
}

// What one made the other does not put back as it was.
func TestAnOldResultLeavesWhatAnotherTaskMade(t *testing.T) {
	w, cjs, esm := beside(t)
	w.mustRun(cjs, "c1", "", func() { w.put("a/dist/x.cjs", "c1"); w.put("a/dist/both", "old") })
	w.mustRun(esm, "e1", "", func() { w.put("a/dist/both", "new") })
	w.remove("a/dist/x.cjs")
	w.want(cjs, "c1", "restored")
	if got := w.text("a/dist/both") + w.text("a/dist/x.cjs"); got != "newc1" {
		t.Errorf("%q", got)
	}
}

// A tool that empties the folder before it writes takes nothing away from what
// another task made in the same run.
func TestWhoEmptiesTheFolderLosesNothingOfOthers(t *testing.T) {
	w, cjs, esm := beside(t)
	w.execute(cjs, "c1", func() {
		w.put("a/dist/x.cjs", "c")
		w.put("a/dist/both", "c")
		w.put("a/dist/big", strings.Repeat("c", 100_000))
	})
	w.execute(esm, "e1", func() { w.remove("a/dist"); w.put("a/dist/x.mjs", "e"); w.put("a/dist/both", "e") })
	if got := w.text("a/dist/x.cjs") + w.text("a/dist/x.mjs") + w.text("a/dist/both"); got != "cee" || len(w.text("a/dist/big")) != 100_000 {
		t.Errorf("%q, and %d bytes", got, len(w.text("a/dist/big")))
	}
	if s := w.c.Stands(cjs, nil, true); s.Foreign || s.Changed != "" {
		t.Errorf("it stands as %+v", s)
	}
	w.close()
	w.remove("a/dist")
	w.want(cjs, "c1", "restored")
	w.want(esm, "e1", "restored")
	if got := w.text("a/dist/x.cjs") + w.text("a/dist/x.mjs"); got != "ce" {
		t.Errorf("restored: %q", got)
	}
}

// What an attempt left that failed, or that is not saved, is in nobody's result;
// one that was killed is run first.
func TestWhatAFailedTaskLeftIsNotAnothers(t *testing.T) {
	w, cjs, esm := beside(t)
	turn, _, err := w.open().Enter(t.Context(), cjs, func(id.Task) {})
	if err := errors.Join(err, turn.Begin()); err != nil {
		t.Fatal(err)
	}
	w.put("a/dist/x.cjs", "half")
	if err := turn.End(); err != nil {
		t.Fatal(err)
	}
	w.mustRun(esm, "e1", "", func() { w.put("a/dist/x.mjs", "e") })
	w.close()
	other := w.at(t.TempDir())
	other.want(esm, "e1", "restored")
	if got := other.text("a/dist/x.mjs") + other.text("a/dist/x.cjs"); got != "e" {
		t.Errorf("the result has %q", got)
	}
	// The count of turns is odd when one was not ended.
	file := filepath.Join(w.dir, "turns", digest.Of([]byte(w.root+"\x00"+string(cjs.ID))).Short())
	if err := os.Truncate(file, 3); err != nil {
		t.Fatal(err)
	}
	if err := w.run(esm, "e2", "", func() { w.put("a/dist/x.mjs", "e2") }); !errs.Is(err, errs.FailedPrecondition) || !strings.Contains(err.Error(), "a#cjs was ended in the middle") {
		t.Errorf("%v", err)
	}
}

// They take turns, also in two runs, and nobody waits for ever.
func TestTasksBesideEachOtherTakeTurns(t *testing.T) {
	w, cjs, esm := beside(t)
	turn, _, err := w.open().Enter(t.Context(), cjs, func(id.Task) {})
	if err != nil {
		t.Fatal(err)
	}
	second := w.at(w.root)
	waits := make(chan id.Task, 1)
	group := life.NewGroup(t.Context())
	group.Go("the other", func(ctx context.Context) error {
		other, _, err := second.open().Enter(ctx, esm, func(of id.Task) { waits <- of })
		return errors.Join(err, other.Begin(), other.End())
	})
	if of := <-waits; of != cjs.ID {
		t.Errorf("it waits for %q", of)
	}
	if err := errors.Join(turn.Begin(), turn.End(), group.Wait()); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		both := life.Each(t.Context(), 2, 2, func(ctx context.Context, i int) error {
			turn, _, err := w.open().Enter(ctx, []*run.Task{cjs, esm}[i], func(id.Task) {})
			return errors.Join(err, turn.Begin(), turn.End())
		})
		if err := errors.Join(both...); err != nil {
			t.Fatal(err)
		}
	}
}

// A result without a part of the outputs is none: a repository among them is not
// restored.
func TestARepositoryAmongTheOutputsIsNotSaved(t *testing.T) {
	w := newWorld(t)
	w.put("a/.git/HEAD", "the project's own is no output")
	all := task("a#build", "**")
	w.mustRun(all, "1", "", func() { w.put("a/dist/x", "1") })
	for name, of := range map[string]*run.Task{"all": all, "a folder": task("a#build", "dist/**")} {
		err := w.run(of, "2", "", func() { w.put("a/dist/fixture/.git/HEAD", "1") })
		if !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "a/dist/fixture/.git") {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.mustRun(task("a#build", "dist/**", "!dist/fixture/**"), "3", "", func() {})
}

// A root's task that writes into projects is not saved, for its hit would bring
// nothing.
func TestOutputsInOtherProjectsAreNotSaved(t *testing.T) {
	w := newWorld(t)
	root := task("//#all", "*/dist/**", "out/**")
	root.Dir = "."
	w.put("a/dist/old", "the project's own, from before")
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(w.root, "a/dist/old"), old, old); err != nil {
		t.Fatal(err)
	}
	for made := time.Now(); time.Since(made) < 2*stamp.Granule; { // it is older then
		runtime.Gosched()
	}
	if err := w.run(root, "1", "", func() { w.put("out/x", "1"); w.put("b/dist/x", "1") }); !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "b/dist/x") {
		t.Errorf("%v", err)
	}
	w.remove("b/dist")
	w.mustRun(root, "2", "", func() { w.put("out/x", "1") })
}
