package history_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"brood/internal/base/errs"
	"brood/internal/run"
)

// TestReadingWhatCannotBeWritten: the past can be looked at where nothing can
// be added to it. What is in the journals is seen too.
func TestReadingWhatCannotBeWritten(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	path := filepath.Join(t.TempDir(), "history.db")
	h := open(t, path)
	record(t, h, 0, done("a#build", run.Success, "1", time.Second, 1))
	for n := range 3 {
		record(t, h, n+1, done("a#build", run.Cached, "1", time.Second, 1))
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	journals, err := filepath.Glob(path + ".journals/*")
	if err != nil || len(journals) != 1 {
		t.Fatalf("journals %v, %v", journals, err)
	}
	before, err := os.ReadFile(journals[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path+"-shm", 0o700); err != nil { // SQLite needs a file there
		t.Fatal(err)
	}
	if _, err := open(t, path).Runs(t.Context(), root, 10); !errs.Is(err, errs.PermissionDenied) {
		t.Fatalf("the file can be opened: %v", err)
	}
	h = open(t, path)
	h.Reading()
	runs, err := h.Runs(t.Context(), root, 10)
	if err != nil || len(runs) != 4 {
		t.Errorf("%d runs, %v", len(runs), err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if after, err := os.ReadFile(journals[0]); err != nil || string(after) != string(before) {
		t.Errorf("the journal was changed: %v", err)
	}
}
