package channel

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPin(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	defer func() { _ = w.Close() }()
	fd, err := unix.Dup(int(w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"runsc-sandbox", "boot", "--pass-fd=90:0", fmt.Sprintf("--pass-fd=%d:3", fd), "--pass-fd=91:13", "id"}
	if err := Pin(args); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(FD) }()
	want := []string{"runsc-sandbox", "boot", "--pass-fd=90:0", "--pass-fd=200:3", "--pass-fd=91:13", "id"}
	if !slices.Equal(args, want) {
		t.Errorf("arguments %q, want %q", args, want)
	}
	if _, err := unix.Write(FD, []byte("x")); err != nil {
		t.Errorf("the moved descriptor: %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
		t.Error("the old descriptor is open")
	}
	flags, err := unix.FcntlInt(FD, unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		t.Errorf("the descriptor ends at gVisor's second start: %d, %v", flags, err)
	}

	// The second start has gVisor's own form of the list.
	again := []string{"runsc-sandbox", "--pass-fd=90:0,91:1,200:3"}
	if err := Pin(again); err != nil || again[1] != "--pass-fd=90:0,91:1,200:3" {
		t.Errorf("the second start: %q, %v", again, err)
	}
}

func TestPinRefusesNonsense(t *testing.T) {
	for _, arg := range []string{"--pass-fd=x:3", "--pass-fd=9999:3"} {
		if err := Pin([]string{arg}); err == nil {
			t.Errorf("%q was accepted", arg)
		}
	}
	for _, arg := range []string{"--pass-fd=", "--pass-fd=:", "--pass-fd=5", "--pass-fd=5:33", "--other=5:3"} {
		if err := Pin([]string{arg}); err != nil {
			t.Errorf("%q: %v", arg, err)
		}
	}
}
