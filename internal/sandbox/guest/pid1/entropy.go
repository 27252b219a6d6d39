//go:build linux

package pid1

import (
	"encoding/binary"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// credit tells the kernel that the bytes are random (RNDADDENTROPY of
// random(4): bits, size, bytes in the machine's byte order) and has it draw
// new keys from them now.
func credit(f *os.File, entropy []byte) error {
	info := make([]byte, 8, 8+len(entropy))
	binary.NativeEndian.PutUint32(info, uint32(8*len(entropy)))
	binary.NativeEndian.PutUint32(info[4:], uint32(len(entropy)))
	info = append(info, entropy...)
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&info[0])))
		if errno == 0 {
			_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, unix.RNDRESEEDCRNG, 0)
		}
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return err
}
