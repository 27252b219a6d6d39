package launcher

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/sandbox/driver/gvisor/launch"

	"golang.org/x/sys/unix"
)

func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(f)
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// A caller that goes away, before, during or after its answer, is no error to
// write down.
func TestCallerThatLeavesIsNoError(t *testing.T) {
	l := &Launcher{boxes: map[string]*box{}}
	for _, asks := range []int{0, 1, 3} {
		ours, theirs := pair(t)
		conn := launch.NewConn(ours)
		for range asks {
			if err := conn.Send(&launch.Request{Op: launch.OpList}); err != nil {
				t.Fatal(err)
			}
		}
		_ = conn.Close()
		if err := l.serveConn(t.Context(), theirs); err != nil {
			t.Errorf("after %d requests: %v", asks, err)
		}
		_ = theirs.Close()
	}
}

// A full disk is told as one, whether the error is the kernel's own or the text
// of another process.
func TestFullDiskCrossesTheProtocol(t *testing.T) {
	for _, err := range []error{
		fmt.Errorf("write bundle: %w", unix.ENOSPC),
		errs.New(errs.FailedPrecondition, "checkpoint directory: %w", unix.EDQUOT),
		errors.New("checkpoint: write /img: no space left on device"),
	} {
		got := launch.NewFailure(diskFull(err)).Err()
		if !errs.Is(got, errs.InsufficientDisk) || errs.Text(got) == err.Error() {
			t.Errorf("%v arrives as %v (%s)", err, got, errs.CodeOf(got))
		}
	}
	if got := launch.NewFailure(diskFull(errors.New("else"))).Err(); !errs.Is(got, errs.Internal) {
		t.Errorf("another error arrives as %v", got)
	}
}
