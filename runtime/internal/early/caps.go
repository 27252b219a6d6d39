package early

import (
	"runtime"
	"syscall"
	"unsafe"
)

// kept are the capabilities that a sandbox needs: those to work with the files
// that it was given, and to trace its own processes.
const kept = 1<<capChown | 1<<capDACOverride | 1<<capDACReadSearch | 1<<capFowner | 1<<capFsetid | 1<<capSysPtrace

// Numbers of linux/capability.h and linux/prctl.h.
const (
	capChown         = 0
	capDACOverride   = 1
	capDACReadSearch = 2
	capFowner        = 3
	capFsetid        = 4
	capSysPtrace     = 19
	capMax           = 63

	capVersion3 = 0x20080522

	prCapBSetRead        = 23
	prCapBSetDrop        = 24
	prCapAmbient         = 47
	prCapAmbientClearAll = 4
)

type capHeader struct {
	version uint32
	pid     int32
}

// capData is half of the sets each: two follow each other.
type capData struct{ effective, permitted, inheritable uint32 }

// giveUpCaps leaves this thread, which is the one that goes on after an exec,
// the capabilities that are kept, of those it has.
func giveUpCaps() error {
	runtime.LockOSThread()
	header := capHeader{version: capVersion3}
	var data [2]capData
	if err := capCall(syscall.SYS_CAPGET, &header, &data); err != nil {
		return doing("read them", err)
	}
	for c := uintptr(0); c <= capMax; c++ {
		// The kernel refuses numbers above those it knows.
		if has, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prCapBSetRead, c, 0); errno != 0 {
			break
		} else if has == 0 || (kept>>c)&1 != 0 && (permitted(data)>>c)&1 != 0 {
			continue
		}
		if err := raw(syscall.SYS_PRCTL, prCapBSetDrop, c, 0); err != nil {
			return doing("bound them", err)
		}
	}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prCapAmbient, prCapAmbientClearAll, 0, 0, 0, 0); errno != 0 {
		return doing("clear the ambient ones", errno)
	}
	low := data[0].permitted & kept
	data = [2]capData{{effective: low, permitted: low, inheritable: 0}}
	return doing("set them", capCall(syscall.SYS_CAPSET, &header, &data))
}

func permitted(d [2]capData) uint64 { return uint64(d[1].permitted)<<32 | uint64(d[0].permitted) }

func capCall(number uintptr, header *capHeader, data *[2]capData) error {
	return raw(number, uintptr(unsafe.Pointer(header)), uintptr(unsafe.Pointer(data)), 0)
}
