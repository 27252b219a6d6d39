package history_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"brood/internal/base/life"
	"brood/internal/run"
	"brood/internal/run/history"
)

// warm is a run in which all came from the cache, after one that taught what it
// takes.
func warm(t testing.TB, h *history.History, n int) *history.Run {
	t.Helper()
	hit := done("a#build", run.Cached, "k", time.Second, 7)
	hit.Attempts = 0
	return record(t, h, n, hit)
}

func taught(t testing.TB, h *history.History) {
	t.Helper()
	record(t, h, 0, done("a#build", run.Success, "k", time.Second, 7))
}

// journalFile is the one journal beside a history.
func journalFile(t testing.TB, path string) string {
	t.Helper()
	all, err := filepath.Glob(path + ".journals/*")
	if err != nil || len(all) != 1 {
		t.Fatalf("journals %v, %v", all, err)
	}
	return all[0]
}

func runIDs(t testing.TB, h *history.History) map[string]bool {
	t.Helper()
	all, err := h.Runs(t.Context(), root, 1000)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, r := range all {
		ids[r.ID] = true
	}
	if len(ids) != len(all) {
		t.Errorf("a run is there twice: %v", all)
	}
	return ids
}

// A run that teaches nothing leaves the database alone, and is in the history
// all the same, with its tasks.
func TestWarmRunsNeedNoDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	h := open(t, path)
	taught(t, h)
	want := figures(t, h)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h = history.New(path, func(text string) { t.Error(text) })
	if got := figures(t, h); !maps.Equal(got, want) || got["a#build"].Wall != time.Second || got["a#build"].PeakMemory != 7 {
		t.Errorf("figures %+v, want %+v", got, want)
	}
	r := warm(t, h, 1)
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the database was written (%v)", err)
	}
	if _, err := os.Stat(path + "-wal"); err == nil {
		t.Error("the database was opened")
	}
	got, err := open(t, path).Run(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Tasks) != 1 || got.Tasks[0].Status != run.Cached || got.Tasks[0].Key != keyOf("k") || got.Counts[run.Cached] != 1 ||
		!got.Began.Equal(r.Began) || fmt.Sprint(got.Command) != "[run build]" {
		t.Errorf("run %+v", got)
	}
}

// Large ones are packed in the journal, and all have their tasks in the end.
func TestJournalsOfManyTasks(t *testing.T) {
	for _, n := range []int{0, 1, 2000} {
		path := filepath.Join(t.TempDir(), "history.db")
		h := open(t, path)
		record(t, h, 0, many(n, "k", run.Success)...)
		r := record(t, h, 1, many(n, "k", run.Cached)...)
		if st, err := os.Stat(journalFile(t, path)); err != nil || st.Size() > 400<<10 {
			t.Errorf("%d tasks: %v, %v", n, st, err)
		}
		got, err := open(t, path).Run(t.Context(), r.ID)
		if err != nil || len(got.Tasks) != n {
			t.Errorf("%d tasks: %+v, %v", n, got, err)
		}
	}
}

// Whatever is not as the last teaching run left it goes to the database.
func TestWhatTeachesGoesToTheDatabase(t *testing.T) {
	h := open(t, filepath.Join(t.TempDir(), "history.db"))
	taught(t, h)
	warm(t, h, 1)
	record(t, h, 2, done("a#build", run.Success, "k", 3*time.Second, 9)) // forced: the same key, and new figures
	warm(t, h, 3)
	record(t, h, 4, done("a#build", run.Cached, "other", 9*time.Second, 9))
	if f := figures(t, h)["a#build"]; f.Runs != 3 || f.Wall != 3*time.Second || f.PeakMemory != 9 {
		t.Errorf("figures %+v", f)
	}
	if len(runIDs(t, h)) != 5 {
		t.Error("runs are missing")
	}
}

// What a crash, a full disk or a bad disk left in a journal costs what is
// damaged, nothing else.
func TestDamagedJournals(t *testing.T) {
	for name, damage := range map[string]func(b []byte) []byte{
		"torn run":     func(b []byte) []byte { return b[:len(b)-5] },
		"flipped run":  func(b []byte) []byte { b[len(b)-5] ^= 1; return b },
		"rest of junk": func(b []byte) []byte { return append(b, 1, 2, 3) },
		"flipped head": func(b []byte) []byte { b[9] ^= 1; return b },
		"no head":      func([]byte) []byte { return nil },
		"huge frame":   func(b []byte) []byte { copy(b, "\xff\xff\xff\xff"); return b },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "history.db")
			h := open(t, path)
			taught(t, h)
			first := warm(t, h, 1)
			last := warm(t, h, 2)
			file := journalFile(t, path)
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
			h = open(t, path)
			if f := figures(t, h)["a#build"]; f.Wall != time.Second {
				t.Errorf("figures %+v", f)
			}
			next := warm(t, h, 3)
			ids := runIDs(t, h)
			if !ids[next.ID] {
				t.Error("a run after the damage is not remembered")
			}
			if name[0] == 't' && (!ids[first.ID] || ids[last.ID]) {
				t.Errorf("of %s and the torn %s there are %v", first.ID, last.ID, ids)
			}
		})
	}
}

// What is no file in a journal's place is neither read nor waited for, and goes.
func TestWhatIsNoJournal(t *testing.T) {
	for name, put := range map[string]func(at string) error{
		"an endless device": func(at string) error { return os.Symlink("/dev/full", at) },
		"a link to itself":  func(at string) error { return os.Symlink(at, at) },
		"a pipe":            func(at string) error { return syscall.Mkfifo(at, 0o600) },
		"a folder":          func(at string) error { return os.Mkdir(at, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "history.db")
			h := open(t, path)
			taught(t, h)
			file := journalFile(t, path)
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if err := put(file); err != nil {
				t.Fatal(err)
			}
			h = open(t, path)
			if f := figures(t, h)["a#build"]; f.Wall != time.Second {
				t.Errorf("figures %+v", f)
			}
			r := warm(t, h, 1)
			if !runIDs(t, open(t, path))[r.ID] {
				t.Error("the run is not remembered")
			}
			if st, err := os.Lstat(file); err != nil || !st.Mode().IsRegular() {
				t.Errorf("in its place is %v, %v", st, err)
			}
		})
	}
}

// A journal that was taken over before a crash could empty it is taken over
// again.
func TestTakenOverTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	h := open(t, path)
	taught(t, h)
	warm(t, h, 1)
	file := journalFile(t, path)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := runIDs(t, open(t, path))
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := runIDs(t, open(t, path)); !maps.Equal(got, want) || len(got) != 2 {
		t.Errorf("runs %v, then %v", want, got)
	}
}

// Without its database a journal's head is worth nothing: what the keys were
// made of is gone.
func TestAJournalWithoutItsDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	h := open(t, path)
	taught(t, h)
	old := warm(t, h, 1)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + end); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	h = open(t, path)
	if got := figures(t, h); len(got) != 0 {
		t.Errorf("figures %+v of a history that is gone", got)
	}
	if ids := runIDs(t, h); !ids[old.ID] {
		t.Error("the journal's run is lost")
	}
	warm(t, h, 2)
	if f := figures(t, history.New(path, func(text string) { t.Error(text) }))["a#build"]; f.Wall != time.Second {
		t.Errorf("a hit's figures were not learnt again: %+v", f)
	}
}

// A journal does not grow for ever.
func TestJournalsAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	h := open(t, path)
	taught(t, h)
	most := int64(0)
	for n := range 150 {
		warm(t, h, n+1)
		st, err := os.Stat(journalFile(t, path))
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, st.Size())
	}
	if most > 64<<10 {
		t.Errorf("%d bytes of runs with one task each", most)
	}
	if len(runIDs(t, open(t, path))) != 151 {
		t.Error("runs are missing")
	}
}

// Runs that are over at the same time, warm ones and others, are all there.
func TestJournalsOfSeveralAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	taught(t, open(t, path))
	fails := life.Each(t.Context(), 4, 4, func(ctx context.Context, i int) error {
		for n := range 20 {
			h := history.New(path, func(text string) { t.Error(text) })
			task := done("a#build", run.Cached, "k", time.Second, 7)
			if n%5 == i {
				task = done("a#build", run.Success, fmt.Sprint(i, n), time.Second, 7)
			}
			r := &history.Run{Workspace: root, Platform: platform, Began: begin.Add(time.Duration(i*100+n+1) * time.Second), Status: run.Success, Tasks: []history.Task{task}}
			if err := h.Record(ctx, r); err != nil {
				return err
			}
			if err := h.Close(); err != nil {
				return err
			}
		}
		return nil
	})
	for _, err := range fails {
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := len(runIDs(t, open(t, path))); n != 81 {
		t.Errorf("%d runs of 81", n)
	}
}
