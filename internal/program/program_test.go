package program

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/life"
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
	for name, damage := range map[string]func() error{
		"truncated":   func() error { return os.Truncate(path, 10) },
		"garbled":     func() error { return garble(path) },
		"not a file":  func() error { return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o700)) },
		"a link":      func() error { return errors.Join(os.Remove(path), os.Symlink("/bin/true", path)) },
		"not to run":  func() error { return os.Chmod(path, 0o600) },
		"anyone's":    func() error { return os.Chmod(path, 0o777) },
		"half anew":   func() error { return os.WriteFile(path+"x", nil, 0o600) },
		"not stamped": func() error { return os.Remove(path + stampSuffix) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if _, err := Install(h); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want, err := carried()
		if err != nil || !sound(path, want) || !stamped(path, want) {
			t.Errorf("%s: it was not repaired (%v)", name, err)
		}
	}
}

// garble changes bytes and nothing else that is seen at a glance.
func garble(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte("no code"), 5000)
	return errors.Join(err, f.Close())
}

func TestManyInstallAtOnce(t *testing.T) {
	h := home.At(filepath.Join(t.TempDir(), "home"))
	all := life.Each(t.Context(), 8, 8, func(context.Context, int) error {
		_, err := Install(h)
		return err
	})
	if err := errors.Join(all...); err != nil && !errs.Is(err, errs.Unsupported) {
		t.Fatal(err)
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
		"brood-d.whole": 0, "brood-a.whole": 0, ".brood-own123": 0, ".lock": 0,
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
	if want := []string{".lock", "brood-a", "brood-a.whole", "brood-b"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left are %q, not %q (%v)", left, want, err)
	}
}
