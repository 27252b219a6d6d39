package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/home"
)

// childEnv makes the test program do one thing instead of the tests:
// "kill|dir|operation|place" or "full disk|dir".
const childEnv = "BROOD_TEST_IMAGE_CHILD"

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		run := killed
		if dir, ok := strings.CutPrefix(spec, "full disk|"); ok {
			run = func([]string) error { return fullDisk(dir) }
		}
		if err := run(strings.Split(spec, "|")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func child(spec string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+spec)
	return cmd
}

func openAt(dir string) (*Store, error) {
	h, err := home.Open(filepath.Join(dir, "home"))
	if err != nil {
		return nil, err
	}
	s, err := Open(h, testGuest)
	if err == nil {
		s.mach = machine{root: filepath.Join(dir, "machine")}
	}
	return s, err
}

// killed does one operation and dies at the place with that number.
func killed(spec []string) error {
	dieAt, err := strconv.Atoi(spec[3])
	if err != nil {
		return err
	}
	s, err := openAt(spec[1])
	if err != nil {
		return err
	}
	passed := 0
	at = func(string) {
		if passed++; passed == dieAt {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	switch spec[2] {
	case "host":
		_, err = s.Resolve(context.Background(), "host", Options{})
	case "folder":
		_, err = s.Resolve(context.Background(), filepath.Join(spec[1], "folder"), Options{})
	case "remove":
		img, e := s.Resolve(context.Background(), "host", Options{})
		err = errors.Join(e, s.Remove(img.Root.Digest, func(digest.Digest) string { return "" }))
	}
	return err
}

func sources(t *testing.T, dir string) {
	t.Helper()
	write(t, dir, map[string]string{
		"machine/usr/x": "x", "machine/etc/passwd": "root", "machine/etc/profile": "p",
		"folder/a": strings.Repeat("a", 300_000), "folder/b": strings.Repeat("b", 5000),
	})
}

// TestKilledAtEveryPlace: afterwards there is the image, whole, or nothing,
// and the next try makes it.
func TestKilledAtEveryPlace(t *testing.T) {
	for _, op := range []string{"folder", "host", "remove"} {
		with, without := 0, 0
		for place := 1; ; place++ {
			dir := t.TempDir()
			sources(t, dir)
			err := child(fmt.Sprintf("kill|%s|%s|%d", dir, op, place)).Run()
			var exit *exec.ExitError
			if err != nil && (!errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL) {
				t.Fatalf("%s at place %d: %v", op, place, err)
			}
			s, e := openAt(dir)
			must(t, e)
			list, e := s.List()
			must(t, e)
			onlyImages(t, s, len(list))
			if len(list) == 0 {
				without++
			} else {
				with++
			}
			for _, img := range list {
				if img.Root.EROFS == "" {
					continue
				}
				if sum, _ := fileDigest(t, img.Root.EROFS); sum != img.Root.Digest {
					t.Errorf("%s at place %d: the image is not whole", op, place)
				}
			}
			for _, ref := range []string{"host", filepath.Join(dir, "folder")} {
				if _, err := s.Resolve(t.Context(), ref, Options{}); err != nil {
					t.Errorf("%s at place %d, then %s: %v", op, place, ref, err)
				}
			}
			if err == nil {
				break
			}
		}
		if with == 0 || without == 0 {
			t.Errorf("%s: left an image %d times and none %d times: the places do not cover it", op, with, without)
		}
	}
}

// TestFullDisk runs on a small filesystem of its own, mounted in a namespace
// of its own, so that an ordinary user can run it too.
func TestFullDisk(t *testing.T) {
	cmd := child("full disk|" + t.TempDir())
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

func fullDisk(dir string) error {
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=4M"); err != nil {
		return fmt.Errorf("cannot mount: %w", err)
	}
	folder := filepath.Join(dir, "folder")
	if err := errors.Join(os.Mkdir(folder, 0o755), os.WriteFile(filepath.Join(folder, "a"), []byte(strings.Repeat("a", 500_000)), 0o644),
		os.MkdirAll(filepath.Join(dir, "machine/usr"), 0o755)); err != nil {
		return err
	}
	s, err := openAt(dir)
	if err != nil {
		return err
	}
	for _, ref := range []string{folder, "host"} {
		worked, refused := 0, 0
		for room := int64(0); room < 1<<20; room += 32 << 10 {
			img, err := s.withRoom(dir, room, ref)
			if err != nil && !errs.Is(err, errs.InsufficientDisk) {
				return fmt.Errorf("%s with room for %d: %v: %w", ref, room, errs.CodeOf(err), err)
			}
			want := 0
			if err != nil {
				refused++
			} else {
				worked++
				want = 1
			}
			if list, e := s.List(); e != nil || len(list) != want {
				return fmt.Errorf("%s with room for %d: %d images: %w", ref, room, len(list), e)
			}
			if err := s.noDebris(); err != nil {
				return fmt.Errorf("%s with room for %d: %w", ref, room, err)
			}
			if want == 1 {
				if err := s.Remove(img.Root.Digest, func(digest.Digest) string { return "" }); err != nil {
					return err
				}
			}
		}
		if worked == 0 || refused == 0 {
			return fmt.Errorf("%s: worked %d times, was refused %d times", ref, worked, refused)
		}
		fmt.Printf("%s: worked %d times, was refused %d times\n", filepath.Base(ref), worked, refused)
	}
	return nil
}

func (s *Store) noDebris() error {
	entries, err := os.ReadDir(s.dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), hiddenPrefix) {
			return fmt.Errorf("%s is left", e.Name())
		}
	}
	return err
}

// withRoom resolves ref while room bytes are free.
func (s *Store) withRoom(dir string, room int64, ref string) (Image, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return Image{}, err
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, max(0, int64(st.Bavail)*st.Bsize-room)), 0o600); err != nil {
		return Image{}, fmt.Errorf("ballast: %w", err)
	}
	img, err := s.Resolve(context.Background(), ref, Options{})
	if e := os.Remove(ballast); e != nil {
		return Image{}, e
	}
	return img, err
}
