//go:build linux

package gvisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"brood/internal/base/id"
	"brood/internal/home"
	"brood/internal/payload"
	"brood/internal/sandbox"
	"brood/internal/sandbox/drivertest"
	"brood/internal/sandbox/image"
)

// ordinaryUID is the user that the tests run as besides root.
const ordinaryUID = 4242

// The second run, as the ordinary user, is told where the probe is: that user
// may have no Go.
const probeEnv = "BROOD_TEST_PROBE"

// shared is what the tests have in common: none of them changes it.
var shared struct {
	dir     string
	full    string // a mounted disk that is too small for anything; "" as ordinary user
	runtime id.Runtime
	path    string // of the runtime program
	erofs   sandbox.Root
	host    sandbox.Root
}

func TestMain(m *testing.M) { os.Exit(mainCode(m)) }

func mainCode(m *testing.M) int {
	var err error
	if shared.dir, err = os.MkdirTemp("", "bgv-"); err == nil {
		err = setUp()
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	err = errors.Join(err, tearDown())
	if err == nil && code == 0 {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func setUp() (err error) {
	h, err := home.Open(filepath.Join(shared.dir, "home"))
	if err != nil {
		return err
	}
	if shared.runtime, shared.path, err = payload.InstallRuntime(h); err != nil {
		return err
	}
	guest, digest, err := payload.Guest()
	if err != nil {
		return err
	}
	images, err := image.Open(h, image.GuestBinary{Bytes: guest, Digest: digest})
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		shared.full = filepath.Join(shared.dir, "full")
		if err := os.Mkdir(shared.full, 0o700); err != nil {
			return err
		}
		// Before any runtime starts, which has the mounts of that moment.
		if err := unix.Mount("full", shared.full, "tmpfs", 0, "size=1m"); err != nil {
			return fmt.Errorf("mount a small disk: %w", err)
		}
	}
	return makeRoots(images)
}

// makeRoots makes an image that holds the probe alone, and this machine's
// root with the probe mounted into it.
func makeRoots(images *image.Store) error {
	root := filepath.Join(shared.dir, "root")
	for _, dir := range []string{"bin", "etc", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if probe := os.Getenv(probeEnv); probe != "" {
		b, err := os.ReadFile(probe)
		if err == nil {
			err = os.WriteFile(filepath.Join(root, "bin", "probe"), b, 0o755)
		}
		if err != nil {
			return err
		}
	} else if _, err := drivertest.Build(filepath.Join(root, "bin")); err != nil {
		return err
	}
	made, err := images.Resolve(noCtx, root, image.Options{})
	if err != nil {
		return err
	}
	shared.erofs = made.Root
	made, err = images.Resolve(noCtx, "host", image.Options{
		Mounts: []sandbox.Bind{{Source: filepath.Join(root, "bin"), Target: "/probe", ReadOnly: true}},
	})
	shared.host = made.Root
	return err
}

func tearDown() error {
	var err error
	if shared.full != "" {
		err = unix.Unmount(shared.full, 0)
	}
	return errors.Join(err, os.RemoveAll(shared.dir))
}

// fullEnv, when set, has the ordinary user run all tests, and not only those
// of -short: the code is the same as root's, its rights are not.
const fullEnv = "BROOD_TEST_FULL"

// TestAsOrdinaryUser runs the other tests once more, as nobody special.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: this is an ordinary user already")
	}
	dir, err := os.MkdirTemp("", "bgu-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	for to, from := range map[string]string{
		"tests": os.Args[0],
		"probe": filepath.Join(shared.dir, "root", "bin", "probe"),
	} {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir, ordinaryUID, ordinaryUID); err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.v", "-test.count=1"}
	if os.Getenv(fullEnv) == "" {
		args = append(args, "-test.short")
	}
	cmd := exec.Command(filepath.Join(dir, "tests"), args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"HOME=" + dir, "TMPDIR=" + dir, "PATH=" + os.Getenv("PATH"), probeEnv + "=" + filepath.Join(dir, "probe"),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUID, Gid: ordinaryUID}}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("as uid %d: %v\n%s", ordinaryUID, err, out.String())
	}
	if !strings.Contains(out.String(), "--- PASS: TestConformance") {
		t.Errorf("the tests did not run as uid %d:\n%s", ordinaryUID, out.String())
	}
}
