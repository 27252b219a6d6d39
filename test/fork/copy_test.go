package fork_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brood/test/live"
)

// What a copy keeps, leaves out and refuses, of a real guest.
func TestCopiesOfOddFiles(t *testing.T) {
	d, dir := live.Start(t, live.Options{}), t.TempDir()
	create(t, d, "src", "sleep", "1000")
	path := func(name string) string { return filepath.Join(dir, name) }

	// Files that do not know their size.
	d.Brood(0, "sb", "cp", "src:/proc/cpuinfo", path("cpuinfo"))
	if b, err := os.ReadFile(path("cpuinfo")); err != nil || !strings.Contains(string(b), "processor") {
		t.Errorf("cpuinfo: %d bytes, %v", len(b), err)
	}
	d.Brood(0, "sb", "cp", "/proc/version", "src:/tmp/version")
	if got, _ := d.Exec("src", "cat", "/tmp/version"); !strings.Contains(got, "Linux") {
		t.Errorf("version inside: %q", got)
	}

	// No content, alone and in a folder.
	d.Brood(4, "sb", "cp", "src:/dev/zero", dir)
	if left, err := filepath.Glob(path("zero*")); err != nil || len(left) > 0 {
		t.Errorf("left of the device: %v, %v", left, err)
	}
	d.Output("src", "sh", "-c", "mkdir /tmp/d && mkfifo /tmp/d/pipe && echo x >/tmp/d/x && ln -s x /tmp/d/l && touch -h -d @1000000000 /tmp/d/l")
	copied, err := d.Client.CopyFrom(within(t), "src", "/tmp/d", dir)
	if err != nil || copied.SkippedTotal != 1 || len(copied.Skipped) != 1 || copied.Skipped[0] != "d/pipe" {
		t.Errorf("%+v, %v", copied, err)
	}
	if st, err := os.Lstat(path("d/l")); err != nil || st.ModTime().Unix() != 1_000_000_000 {
		t.Errorf("the link: %v, %v", st.ModTime(), err)
	}

	// Setuid goes in and does not come out.
	if err := os.WriteFile(path("tool"), []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path("tool"), os.ModeSetuid|0o755); err != nil {
		t.Fatal(err)
	}
	d.Brood(0, "sb", "cp", path("tool"), "src:/tmp/tool")
	if got := strings.TrimSpace(d.Output("src", "stat", "-c", "%a", "/tmp/tool")); got != "4755" {
		t.Errorf("inside it has mode %s", got)
	}
	d.Brood(0, "sb", "cp", "src:/tmp/tool", path("back"))
	if st, err := os.Stat(path("back")); err != nil || st.Mode() != 0o755 {
		t.Errorf("outside again it has mode %v, %v", st.Mode(), err)
	}

	// Holes, and places that are not there.
	d.Output("src", "truncate", "-s", "20M", "/tmp/sparse")
	d.Brood(0, "sb", "cp", "src:/tmp/sparse", path("sparse"))
	if st, err := os.Stat(path("sparse")); err != nil || st.Size() != 20<<20 || st.Sys().(*syscall.Stat_t).Blocks > 64 {
		t.Errorf("sparse: %+v, %v", st, err)
	}
	d.Brood(3, "sb", "cp", path("tool"), "src:/no/such/tool")
	d.Brood(3, "sb", "cp", "src:/tmp/tool", path("no/such/tool"))
}
