package history_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/run"
	"brood/internal/run/cache/key"
	"brood/internal/run/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, path string) *history.History {
	t.Helper()
	h := history.New(path, func(text string) { t.Error(text) })
	t.Cleanup(func() { _ = h.Close() })
	return h
}

const root, platform = "/w", "linux/amd64"

// begin is when the tests' first run began.
var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func record(t testing.TB, h *history.History, n int, tasks ...history.Task) *history.Run {
	t.Helper()
	r := &history.Run{Workspace: root, Platform: platform, Command: []string{"run", "build"}, Began: begin.Add(time.Duration(n) * time.Minute), Status: run.Success, Tasks: tasks}
	r.Ended = r.Began.Add(time.Second)
	if err := h.Record(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

func keyOf(s string) run.Key { return digest.Of([]byte(s)) }

func done(name string, status run.Status, k string, took time.Duration, peak int64) history.Task {
	return history.Task{ID: id.Task(name), Status: status, Key: keyOf(k), Began: begin, Ended: begin.Add(took), Took: took,
		Usage: run.Usage{CPU: took / 2, PeakMemory: peak}, Attempts: 1}
}

func figures(t testing.TB, h *history.History) map[id.Task]history.Figures {
	t.Helper()
	f, err := h.Figures(t.Context(), root, platform)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFiguresAreOfTheLastFifty(t *testing.T) {
	h := open(t, filepath.Join(t.TempDir(), "history.db"))
	record(t, h, 0, done("a#build", run.Success, "0", time.Hour, 1<<40))
	for i := 1; i <= 50; i++ {
		record(t, h, i, done("a#build", run.Success, fmt.Sprint(i), time.Duration(i)*time.Second, int64(i)))
	}
	f := figures(t, h)["a#build"]
	if f.Runs != 50 || f.Wall != 25*time.Second || f.Wall90 != 45*time.Second || f.CPU != 12500*time.Millisecond || f.PeakMemory != 50 || f.Flaky {
		t.Errorf("figures %+v", f)
	}
	if len(figures(t, h)) != 1 {
		t.Error("one task ran")
	}
	other, err := h.Figures(t.Context(), root, "darwin/arm64")
	if err != nil || len(other) != 0 {
		t.Errorf("another platform knows %v, %v", other, err)
	}
}

func TestAHitHandsOnWhatItsProducerTook(t *testing.T) {
	h := open(t, filepath.Join(t.TempDir(), "history.db"))
	for i := range 3 {
		record(t, h, i, done("a#build", run.Cached, "k", 7*time.Second, 99))
	}
	if f := figures(t, h)["a#build"]; f.Runs != 1 || f.Wall != 7*time.Second || f.PeakMemory != 99 {
		t.Errorf("figures %+v: one producing run, restored three times, is one", f)
	}
}

func TestFlaky(t *testing.T) {
	for name, tc := range map[string]struct {
		tasks []history.Task
		want  bool
	}{
		"same key":    {[]history.Task{done("t", run.Success, "k", 1, 1), done("t", run.Failed, "k", 1, 1)}, true},
		"other key":   {[]history.Task{done("t", run.Success, "k", 1, 1), done("t", run.Failed, "l", 1, 1)}, false},
		"retried":     {[]history.Task{{ID: "t", Status: run.Success, Key: keyOf("k"), Attempts: 2}}, true},
		"broken":      {[]history.Task{done("t", run.Failed, "k", 1, 1), done("t", run.Failed, "k", 1, 1)}, false},
		"aborted":     {[]history.Task{done("t", run.Success, "k", 1, 1), done("t", run.Aborted, "k", 1, 1)}, false},
		"then passed": {[]history.Task{done("t", run.Failed, "k", 1, 1), done("t", run.Success, "k", 1, 1)}, true},
	} {
		h := open(t, filepath.Join(t.TempDir(), "history.db"))
		for i, task := range tc.tasks {
			record(t, h, i, task)
		}
		if f := figures(t, h)["t"]; f.Flaky != tc.want {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestKeysAreKeptWithTheirParts(t *testing.T) {
	h := open(t, filepath.Join(t.TempDir(), "history.db"))
	parts := func(version string) *key.Parts {
		g := &key.Group{Name: key.FilesGroup, Items: []key.Item{{Name: "a\xff.ts", Value: version}}}
		g.Sum = digest.Of(g.Encode())
		same := &key.Group{Name: key.GlobalGroup, Items: []key.Item{{Name: "x", Value: "y"}}}
		same.Sum = digest.Of(same.Encode())
		return &key.Parts{Key: keyOf(version), Groups: []*key.Group{g, same}}
	}
	for i, v := range []string{"1", "2", "2", "1", "3"} {
		task := done("a#build", run.Success, v, time.Second, 1)
		task.Parts = parts(v)
		record(t, h, i, task)
	}
	known, err := h.Keys(t.Context(), root, "a#build")
	if err != nil || len(known) != 3 {
		t.Fatalf("%d keys, %v", len(known), err)
	}
	for i, v := range []string{"3", "1", "2"} {
		if known[i].Parts.Key != keyOf(v) {
			t.Errorf("key %d is not that of %s", i, v)
		}
	}
	diff := key.Diff(known[1].Parts, known[0].Parts)
	if len(diff) != 1 || diff[0] != (key.Change{Group: key.FilesGroup, Name: "a\xff.ts", Old: "1", New: "3"}) {
		t.Errorf("diff %+v", diff)
	}
	if none, err := h.Keys(t.Context(), root, "b#build"); err != nil || none != nil {
		t.Errorf("a task that never ran: %v, %v", none, err)
	}
}

func TestRuns(t *testing.T) {
	h := open(t, filepath.Join(t.TempDir(), "history.db"))
	var last *history.Run
	for i := range 205 {
		last = record(t, h, i, done("a#build", run.Success, "k", time.Second, 1))
	}
	all, err := h.Runs(t.Context(), root, 1000)
	if err != nil || len(all) != 200 || all[0].ID != last.ID || all[0].Counts[run.Success] != 1 || all[0].Command[1] != "build" {
		t.Fatalf("%d runs, %v", len(all), err)
	}
	one, err := h.Run(t.Context(), last.ID[:11])
	if err != nil || one.ID != last.ID || len(one.Tasks) != 1 || one.Tasks[0].Took != time.Second || !one.Began.Equal(last.Began) {
		t.Errorf("run %+v, %v", one, err)
	}
	if _, err := h.Run(t.Context(), "zz"); !errs.Is(err, errs.NotFound) {
		t.Errorf("err %v", err)
	}
	if _, err := h.Run(t.Context(), ""); err == nil {
		t.Error("no id names no run")
	}
}

func TestSeveralWriteAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "odd ?#%41 name", "history.db")
	fails := life.Each(t.Context(), 6, 6, func(_ context.Context, i int) error {
		h := history.New(path, func(string) {})
		defer h.Close()
		for n := range 10 {
			r := &history.Run{Workspace: root, Platform: platform, Began: begin.Add(time.Duration(i*100+n) * time.Second), Status: run.Success,
				Tasks: []history.Task{done("shared#build", run.Success, fmt.Sprint(i, n), time.Second, 1), done(fmt.Sprintf("own%d#build", i), run.Success, "k", 1, 1)}}
			if err := h.Record(t.Context(), r); err != nil {
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
	h := open(t, path)
	if f := figures(t, h); f["shared#build"].Runs != 50 || len(f) != 7 {
		t.Errorf("figures %+v", f)
	}
	if all, err := h.Runs(t.Context(), "", 100); err != nil || len(all) != 60 {
		t.Errorf("%d runs, %v", len(all), err)
	}
}

func TestForeignFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	if err := os.WriteFile(path, []byte("this is not a database, however long it may be, and it never was one of any kind ........"), 0o600); err != nil {
		t.Fatal(err)
	}
	var warned []string
	h := history.New(path, func(text string) { warned = append(warned, text) })
	t.Cleanup(func() { _ = h.Close() })
	if len(figures(t, h)) != 0 {
		t.Error("figures of a file that is no database")
	}
	if b, err := os.ReadFile(path + ".damaged"); err != nil || !strings.HasPrefix(string(b), "this is not") {
		t.Errorf("it is gone (%v)", err)
	}
	if len(warned) != 1 || !strings.Contains(warned[0], path+".damaged") {
		t.Errorf("warned %q", warned)
	}
	taught(t, h)
	if f := figures(t, h); len(f) != 1 {
		t.Errorf("figures %+v of a history that began anew", f)
	}
}

// A database that turns out damaged when a run is to be recorded is put aside
// then, and the run is in the new one.
func TestDamagedWhenARunEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	h := open(t, path)
	taught(t, h)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	warned := 0
	h = history.New(path, func(string) { warned++ })
	t.Cleanup(func() { _ = h.Close() })
	figures(t, h) // the journal has them
	warm(t, h, 1) // the same
	if warned != 0 {
		t.Error("a journal was there, and the database was looked into")
	}
	r := record(t, h, 2, done("a#build", run.Success, "other", time.Second, 1))
	if warned != 1 || !runIDs(t, h)[r.ID] {
		t.Errorf("%d warnings; the run is not there", warned)
	}
}

func many(n int, k string, status run.Status) []history.Task {
	all := make([]history.Task, n)
	for i := range all {
		all[i] = done(fmt.Sprintf("package-%04d#build", i), status, fmt.Sprint(k, i), time.Second, 1<<20)
		g := &key.Group{Name: key.FilesGroup, Items: []key.Item{{Name: "x", Value: fmt.Sprint(k, i)}}}
		g.Sum = digest.Of(g.Encode())
		all[i].Parts = &key.Parts{Key: all[i].Key, Groups: []*key.Group{g}}
	}
	return all
}

func BenchmarkTenThousandTasks(b *testing.B) {
	path := filepath.Join(b.TempDir(), "history.db")
	h := open(b, path)
	n := 0
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			n++
			record(b, h, n, many(10_000, fmt.Sprint(n, "-"), run.Success)...)
		}
	})
	record(b, h, n+1, many(10_000, "warm", run.Cached)...)
	b.Run("warm", func(b *testing.B) {
		tasks := many(10_000, "warm", run.Cached)
		for b.Loop() {
			n++
			record(b, h, n+1, tasks...)
		}
	})
	b.Run("figures", func(b *testing.B) {
		for b.Loop() {
			if len(figures(b, h)) != 10_000 {
				b.Fatal("figures are missing")
			}
		}
	})
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			h := history.New(path, func(string) {})
			if _, err := h.Runs(b.Context(), root, 1); err != nil {
				b.Fatal(err)
			}
			_ = h.Close()
		}
	})
}
