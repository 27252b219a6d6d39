package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
)

const diskSize = 4 << 20

// TestFullDisk runs on a small filesystem of its own, mounted in a namespace
// of its own, so that an ordinary user can run it too.
func TestFullDisk(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=full disk|"+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || strings.Contains(string(out), "cannot mount") {
		t.Skipf("SKIPPED: this machine gives no namespace to mount in: %v %s", err, out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// fullDisk is the child's part: it fills the disk to every level and expects
// each operation to work whole, or to be refused for lack of disk and leave
// what was there.
func fullDisk(dir string) error {
	if err := syscall.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskSize)); err != nil {
		return fmt.Errorf("cannot mount: %w", err)
	}
	h, err := home.Open(filepath.Join(dir, "home"))
	if err != nil {
		return err
	}
	s, err := Open(h)
	if err != nil {
		return err
	}
	if err := produce(s, "base", "old", Options{}); err != nil {
		return err
	}
	for _, op := range []string{"create", "replace", "quiet driver"} {
		worked, refused := 0, 0
		for room := int64(0); room < 1<<20; room += 48 << 10 {
			err := withRoom(dir, room, func() error { return fill(s, op) })
			switch {
			case err == nil:
				worked++
			case errs.Is(err, errs.InsufficientDisk):
				refused++
			default:
				return fmt.Errorf("%s with room for %d: %v: %w", op, room, errs.CodeOf(err), err)
			}
			if err := restore(h, s, err == nil); err != nil {
				return fmt.Errorf("%s with room for %d: %w", op, room, err)
			}
		}
		if worked == 0 || refused == 0 {
			return fmt.Errorf("%s: worked %d times, was refused %d times", op, worked, refused)
		}
		fmt.Printf("%s: worked %d times, was refused %d times\n", op, worked, refused)
	}
	return nil
}

func fill(s *Store, op string) error {
	switch op {
	case "replace":
		return produce(s, "base", "new", Options{Replace: true})
	case "quiet driver":
		return quiet(s)
	}
	return produce(s, "fresh", "new", Options{})
}

// quiet is a driver that ends with success and a cut file on a full disk.
func quiet(s *Store) error {
	d, err := s.Begin("fresh", Options{})
	if err != nil {
		return err
	}
	const want = 300_000
	p := filepath.Join(d.Dir(), "pages")
	_ = os.WriteFile(p, []byte(strings.Repeat("new", want/3)), 0o600)
	_, err = d.Publish(context.Background(), Facts{
		Driver: "fake", Capture: Memory, Needs: Needs{Arch: "amd64"}, Base: Base{Kind: EROFS, Digest: digest.Of(nil)},
		Check: func(string) error {
			if st, err := os.Stat(p); err != nil || st.Size() != want {
				return errs.New(errs.DataLoss, "pages is cut")
			}
			return nil
		},
	})
	return err
}

// withRoom leaves room bytes free while f runs.
func withRoom(dir string, room int64, f func() error) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return err
	}
	ballast := filepath.Join(dir, "ballast")
	b := make([]byte, max(0, int64(st.Bavail)*st.Bsize-room))
	if err := os.WriteFile(ballast, b, 0o600); err != nil {
		return fmt.Errorf("ballast: %w", err)
	}
	return errors.Join(f(), os.Remove(ballast))
}

// restore checks that the store is whole and brings it back to "base=old".
func restore(h *home.Home, s *Store, worked bool) error {
	entries, err := os.ReadDir(h.Checkpoints())
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := s.Verify(context.Background(), id.Name(e.Name()), nil); err != nil {
			return err
		}
	}
	if again, err := Open(h); err != nil || len(again.List()) != len(entries) || len(again.Damaged()) > 0 {
		return fmt.Errorf("%d entries, %v read, damaged %v: %w", len(entries), again.List(), again.Damaged(), err)
	}
	base, err := s.Get("base")
	if err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(base.Dir, "pages"))
	if err != nil {
		return err
	}
	if !worked && (len(entries) != 1 || string(b[:3]) != "old") {
		return fmt.Errorf("a refused operation left %d entries and %q", len(entries), b[:3])
	}
	if len(entries) == 2 {
		return s.Delete("fresh")
	}
	if string(b[:3]) != "old" {
		return produce(s, "base", "old", Options{Replace: true})
	}
	return nil
}
