package program

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"brood/internal/base/errs"
	"brood/internal/home"
)

// installed installs the program into a new home, and skips nothing: a plain
// checkout says what to do, and that is what is tested there.
func installed(t *testing.T) (h *home.Home, path string, ok bool) {
	t.Helper()
	h = home.At(filepath.Join(t.TempDir(), "home"))
	path, err := Install(h)
	if errs.Is(err, errs.Unsupported) {
		if _, err := os.Stat(h.Dir()); err == nil {
			t.Error("a home was made for nothing")
		}
		return h, "", false
	}
	if err != nil {
		t.Fatal(err)
	}
	return h, path, true
}

func TestInstallOnceAndRepairs(t *testing.T) {
	h, path, ok := installed(t)
	if !ok {
		return
	}
	first, err := os.Stat(path)
	if err != nil || first.Mode().Perm() != 0o755 || filepath.Dir(path) != h.Programs() {
		t.Fatal(path, first.Mode(), err)
	}
	if _, err := Install(h); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.Stat(path); !os.SameFile(first, again) {
		t.Error("written twice")
	}
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(h); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.Stat(path); again.Size() != first.Size() {
		t.Error("a truncated program was not repaired")
	}
}

func TestAForeignFolderStaysAsItIs(t *testing.T) {
	dir := t.TempDir()
	mine := filepath.Join(dir, "thesis.txt")
	if err := os.WriteFile(mine, []byte("all of it"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(home.At(dir)); err == nil {
		t.Fatal("a folder with something else in it was taken for a home")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
}

func TestOldProgramsGo(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	for name, age := range map[string]time.Duration{
		"brood-own": 5 * time.Hour, "brood-a": time.Hour, "brood-b": 2 * time.Hour, "brood-c": 3 * time.Hour, "brood-d": 4 * time.Hour,
		".brood-own123": 2 * time.Hour, ".brood-own456": time.Minute,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tidy(dir, "brood-own"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{".brood-own456", "brood-a", "brood-b", "brood-own"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left are %q, not %q (%v)", left, want, err)
	}
}
