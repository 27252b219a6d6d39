package test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// What every test needs: programs, and a place that this user owns.
var (
	runtimePath string
	guestDir    string // holds the static guest program
	scratch     string
)

// ordinaryUID is the user that tests run as besides root.
const ordinaryUID = 4242

// asUserEnv marks the second run, in which this test program is the ordinary
// user.
const asUserEnv = "BROOD_TEST_AS_USER"

func TestMain(m *testing.M) {
	os.Exit(mainCode(m))
}

func mainCode(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "brt-"); err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	if err := os.Chmod(scratch, 0o755); err != nil {
		return fail(err)
	}
	runtimePath, guestDir = os.Getenv("BROOD_RUNTIME"), os.Getenv("BROOD_TEST_GUEST")
	if runtimePath == "" {
		if runtimePath, err = cachedRuntime(); err != nil {
			return fail(err)
		}
	}
	if guestDir == "" {
		guestDir = filepath.Join(scratch, "guest")
		if err := goBuild(filepath.Join(guestDir, "guest"), "brood/runtime/test/guest"); err != nil {
			return fail(err)
		}
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			return fail(err)
		}
	}
	return code
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func goBuild(out, pkg string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	return nil
}

// cachedRuntime builds the runtime; the go command's cache makes it quick when
// nothing changed.
func cachedRuntime() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	out := filepath.Join(cache, "brood-runtime-test")
	cmd := exec.Command("go", "run", "brood/runtime/build", out)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build runtime: %w", err)
	}
	// The ordinary user has to reach it.
	copied := filepath.Join(scratch, "brood-runtime")
	content, err := os.ReadFile(filepath.Join(out, "brood-runtime"))
	if err != nil {
		return "", err
	}
	return copied, os.WriteFile(copied, content, 0o755)
}

// TestAsOrdinaryUser runs all other tests again as a user without rights.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: this is an ordinary user already")
	}
	if os.Getenv(asUserEnv) != "" {
		t.Skip("second run")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(scratch, "user")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	// go test keeps its program where only root reaches it.
	program := filepath.Join(home, "tests")
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, content, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{home, program} {
		if err := os.Chown(p, ordinaryUID, ordinaryUID); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	args := []string{"-test.count=1", "-test.timeout=9m"}
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = home
	cmd.Env = append(os.Environ(),
		"HOME="+home, "TMPDIR="+home, asUserEnv+"=1", "GOCOVERDIR=",
		"BROOD_RUNTIME="+runtimePath, "BROOD_TEST_GUEST="+guestDir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUID, Gid: ordinaryUID}}
	out, err := cmd.CombinedOutput()
	t.Logf("as uid %d:\n%s", ordinaryUID, out)
	if err != nil {
		t.Fatalf("tests as ordinary user: %v", err)
	}
}
