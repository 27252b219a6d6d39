package content

import (
	"errors"
	"os"
	"path"
	"syscall"
	"time"
	"unsafe"
)

const noFollow = 0x100 // AT_SYMLINK_NOFOLLOW, which package syscall has no name for

// LinkTime sets when a symlink itself was changed.
func LinkTime(root *os.Root, name string, t time.Time) error {
	dir, err := root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	base, err := syscall.BytePtrFromString(path.Base(name))
	if err != nil {
		return errors.Join(err, dir.Close())
	}
	ts := syscall.NsecToTimespec(t.UnixNano())
	both := [2]syscall.Timespec{ts, ts}
	_, _, no := syscall.Syscall6(syscall.SYS_UTIMENSAT, dir.Fd(), uintptr(unsafe.Pointer(base)), uintptr(unsafe.Pointer(&both)), noFollow, 0, 0)
	err = nil
	if no != 0 {
		err = &os.PathError{Op: "set the time of", Path: name, Err: no}
	}
	return errors.Join(err, dir.Close())
}
