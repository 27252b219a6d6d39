package early

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// parseUmount knows the command that waits for a byte and unmounts a directory.
func parseUmount(argv []string) (fd int, dir string, ok bool) {
	if len(argv) != 4 || argv[1] != "umount" {
		return 0, "", false
	}
	number, ok := strings.CutPrefix(argv[2], "--sync-fd=")
	fd, err := strconv.Atoi(number)
	return fd, argv[3], ok && err == nil && fd >= 0 && strings.HasPrefix(argv[3], "/")
}

func umountWhenTold(fd int, dir string) error {
	told := os.NewFile(uintptr(fd), "sync")
	if n, err := told.Read(make([]byte, 1)); n != 1 {
		if err == nil {
			err = errors.New("nothing came")
		}
		return doing("wait for the sandbox", err)
	}
	return doing("unmount "+dir, syscall.Unmount(dir, syscall.MNT_DETACH))
}

// startUmounter starts the process that unmounts /proc, and returns the
// descriptor that tells it to. The descriptor outlives an exec.
func startUmounter() (int, error) {
	var pipe [2]int
	if err := syscall.Pipe2(pipe[:], syscall.O_CLOEXEC); err != nil {
		return 0, err
	}
	_, err := syscall.ForkExec(selfPath, []string{selfPath, "umount", "--sync-fd=3", "/proc"}, &syscall.ProcAttr{
		Files: []uintptr{0, 1, 2, uintptr(pipe[0])},
	})
	_ = syscall.Close(pipe[0])
	if err != nil {
		return 0, err
	}
	return pipe[1], raw(syscall.SYS_FCNTL, uintptr(pipe[1]), syscall.F_SETFD, 0)
}
