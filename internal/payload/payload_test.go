package payload

import (
	"os"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/home"
)

func TestInstallRuntimeOnceAndRepairs(t *testing.T) {
	h, err := home.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	rt, path, err := InstallRuntime(h)
	if errs.Is(err, errs.Unsupported) { // plain checkout: the message is the behaviour
		if _, _, err := Guest(); !errs.Is(err, errs.Unsupported) {
			t.Errorf("guest: %v", err)
		}
		return
	}
	if err != nil || path != RuntimePath(h, rt) {
		t.Fatal(path, err)
	}
	first, err := os.Stat(path)
	if err != nil || first.Mode().Perm() != 0o755 {
		t.Fatal(first.Mode(), err)
	}
	if _, _, err := InstallRuntime(h); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.Stat(path); !os.SameFile(first, again) {
		t.Error("written twice")
	}
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	if _, _, err := InstallRuntime(h); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.Stat(path); again.Size() != first.Size() {
		t.Error("a truncated runtime was not repaired")
	}
}
