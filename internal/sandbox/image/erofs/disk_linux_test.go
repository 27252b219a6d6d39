package erofs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func allocated(fi fs.FileInfo) int64 { return fi.Sys().(*syscall.Stat_t).Blocks * 512 }

// TestKernelMountsTheImage needs root and a kernel that mounts EROFS from a
// file; elsewhere it says that it was skipped.
func TestKernelMountsTheImage(t *testing.T) {
	f := imageFile(t)
	want := sample(t, f)
	dir := t.TempDir()
	if err := syscall.Mount(f.Name(), dir, "erofs", syscall.MS_RDONLY, ""); err != nil {
		t.Skipf("SKIPPED: this machine cannot mount EROFS from a file: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	for path, content := range want {
		got, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil || string(got) != content {
			t.Fatalf("%q: %d bytes, %v", path, len(got), err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, "wide"))
	if err != nil || len(entries) != 3000 {
		t.Errorf("wide directory has %d entries, %v", len(entries), err)
	}
	for _, size := range []int{1, 59, 4032, 4033, 4095} {
		if got, err := os.Readlink(filepath.Join(dir, fmt.Sprintf("symlink-%d", size))); len(got) != size {
			t.Errorf("symlink of %d reads as %d bytes, %v", size, len(got), err)
		}
	}
	for _, missing := range []string{"wide/entry", "wide/zzz", "wide/!", "nothing"} {
		if _, err := os.Stat(filepath.Join(dir, missing)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", missing, err)
		}
	}
}
