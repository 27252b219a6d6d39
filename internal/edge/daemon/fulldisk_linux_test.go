package daemon_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brood/internal/home"
)

const smallDisk = "BROOD_TEST_SMALL_DISK" // the folder to mount one at

// A daemon starts on a full disk, so that something can be deleted, and writes
// how to reach it when there is room. It runs on a small filesystem of its own,
// mounted in a namespace of its own.
func TestStartsOnAFullDisk(t *testing.T) {
	if dir := os.Getenv(smallDisk); dir != "" {
		startOnAFullDisk(t, dir)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStartsOnAFullDisk$", "-test.v")
	cmd.Env = append(os.Environ(), smallDisk+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || strings.Contains(string(out), "cannot mount") {
		t.Skipf("SKIPPED: this machine gives no namespace to mount in: %v %s", err, out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Fatalf("%v\n%s", err, out)
	}
}

func startOnAFullDisk(t *testing.T, disk string) {
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatalf("cannot mount: %v", err)
	}
	dir, w := filepath.Join(disk, "home"), newWorld(t)
	h := home.At(dir)
	c, stop := serve(t, dir, w)
	_, err := c.CreateSandbox(t.Context(), createIn(folder(t), "src"), nil)
	check(t, err)
	check(t, stop())
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	c, _ = serve(t, dir, w)
	if _, err := os.Stat(h.Discovery()); err == nil {
		t.Error("the disk is not full")
	}
	check(t, c.DeleteSandbox(t.Context(), "src"))
	check(t, os.Remove(ballast))
	eventually(t, "the discovery file", func() bool {
		_, err := os.Stat(h.Discovery())
		return err == nil
	})
}

// fill writes a file until nothing more fits.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	check(t, err)
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}
