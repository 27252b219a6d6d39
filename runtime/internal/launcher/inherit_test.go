package launcher

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestChildrenGetWhatIsPassed: a launcher with connections to many sandboxes
// gives none of them to the next, and none of the numbers that gVisor needs.
func TestChildrenGetWhatIsPassed(t *testing.T) {
	if err := reserve(); err != nil {
		t.Fatal(err)
	}
	passed := filepath.Join(t.TempDir(), "passed")
	if err := os.WriteFile(passed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() int {
		fd, err := unix.Open("/proc/self/status", unix.O_RDONLY, 0) // as gVisor opens: children get it
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	for range 400 {
		if fd := open(); fd >= guestFirst && fd < guestFirst+guestCount {
			t.Fatalf("%d was given to a file", fd)
		}
	}
	if err := keepFromChildren(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(passed)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := exec.CommandContext(t.Context(), "/bin/sh", "-c", "for f in /proc/$$/fd/*; do readlink $f; done; true")
	c.ExtraFiles = []*os.File{f}
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	if s := string(out); !strings.Contains(s, passed) || strings.Contains(s, "/status") {
		t.Errorf("a child has\n%s", s)
	}
	late := open() // while another sandbox starts
	c = exec.CommandContext(t.Context(), "/bin/sh", "-c", fmt.Sprintf("for n in 256 257 258; do test ! -e /proc/$$/fd/$n || exit 1; done; test -e /proc/$$/fd/%d", late))
	if err := c.Run(); err != nil {
		t.Errorf("a number that gVisor needs is taken, or the test proves nothing: %v", err)
	}
}
