package cache_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brood/internal/base/errs"
)

// TestFullDisk uses a file system of a few megabytes for the store, and then
// for the workspace.
func TestFullDisk(t *testing.T) {
	small := t.TempDir()
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("SKIPPED, needs root: a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(small, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	noise := make([]byte, 3<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(noise)
	build := task("a#build", "dist/**")

	w := newWorld(t)
	w.dir = filepath.Join(small, "cache")
	make := func() { w.put("a/dist/x", string(noise)) }
	w.mustRun(build, "1", "", make)
	noise[0]++
	err := w.run(build, "2", "", make)
	if !errs.Is(err, errs.InsufficientDisk) || !strings.Contains(fmt.Sprint(err), "disk is full") {
		t.Errorf("a full disk is reported as %v", err)
	}
	w.want(build, "2", "miss")
	w.want(build, "1", "restored")
	if names, _ := os.ReadDir(filepath.Join(w.dir, "tmp")); len(names) != 0 {
		t.Errorf("debris %v", names)
	}
	w.close()

	other := w.at(filepath.Join(small, "w"))
	other.dir = filepath.Join(t.TempDir(), "cache")
	w.dir = other.dir
	w.mustRun(build, "3", "", make)
	w.close()
	if err := os.RemoveAll(filepath.Join(small, "cache")); err != nil {
		t.Fatal(err)
	}
	other.put("a/dist/old", string(noise[:2<<20]))
	if got := other.restore(build, "3"); !strings.Contains(got, "disk is full") {
		t.Errorf("restore: %s", got)
	}
	if _, err := os.Stat(filepath.Join(other.root, "a/dist/old")); err != nil {
		t.Error("the tree was touched though there is no room for the result")
	}
	other.remove("a/dist")
	err = other.run(build, "3", "", func() { other.put("a/dist/x", "made when there was no room") })
	if err == nil || !strings.Contains(err.Error(), "the stored result is kept") {
		t.Errorf("the entry that could not be restored was replaced: %v", err)
	}
	other.remove("a/dist")
	other.want(build, "3", "restored")
	if b, err := os.ReadFile(filepath.Join(other.root, "a/dist/x")); err != nil || len(b) != len(noise) {
		t.Errorf("another result came back: %d bytes, %v", len(b), err)
	}
}

// TestTwoGigabytes restores a file that is larger than what 32 bits hold, with
// its holes.
func TestTwoGigabytes(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it reads two gigabytes several times")
	}
	w := newWorld(t)
	build := task("a#build", "dist/**")
	const size = 2<<30 + 5
	name := filepath.Join(w.root, "a/dist/big")
	w.mustRun(build, "k", "", func() {
		w.put("a/dist/big", "begin")
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		_, err = f.WriteAt([]byte("end"), size-3)
		if err == nil {
			_, err = f.WriteAt([]byte("middle"), 1<<30+7)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	w.remove("a/dist")
	w.want(build, "k", "restored") // which checks the digest
	st, err := os.Stat(name)
	if err != nil || st.Size() != size {
		t.Fatalf("%v, %v", st, err)
	}
	if used := st.Sys().(*syscall.Stat_t).Blocks * 512; used > 1<<20 {
		t.Errorf("it takes %d bytes of the disk", used)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 6)
	if _, err := f.ReadAt(b, 1<<30+7); err != nil || string(b) != "middle" {
		t.Errorf("%q, %v", b, err)
	}
	w.close()
	w.want(build, "k", "same")
}
