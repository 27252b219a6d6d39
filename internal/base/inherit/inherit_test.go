package inherit_test

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"brood/internal/base/inherit"
)

func TestNothingIsInherited(t *testing.T) {
	fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY, 0) // as a parent's: children get it
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	has := func() bool {
		return exec.CommandContext(t.Context(), "/bin/sh", "-c", fmt.Sprintf("test -e /dev/fd/%d", fd)).Run() == nil
	}
	if !has() {
		t.Fatal("a child has not what its parent has: the test proves nothing")
	}
	if err := inherit.Nothing(); err != nil {
		t.Fatal(err)
	}
	if has() {
		t.Error("a child has it")
	}
}
