//go:build linux

package pid1

import (
	"syscall"
	"time"
)

// OS is what differs between a sandbox of its own and a test that runs the
// server as one process among others.
type OS interface {
	// Processes lists the processes that are the sandbox's, without the
	// server itself and without threads of the kernel.
	Processes() ([]Proc, error)
	// Signal sends a signal to a process, or to a group when pid < 0.
	Signal(pid int, sig syscall.Signal) error
	// SetHostname and Hostname set and read back the name of the machine.
	SetHostname(name string) error
	Hostname() (string, error)
	// StepClock moves the wall clock.
	StepClock(by time.Duration) error
	// Protect makes a folder or file read-only, or writable inside one that
	// is not.
	Protect(place string, readOnly bool) error
}

// Proc is a process as /proc tells it.
type Proc struct {
	PID, PPID      int
	Group, Session int
	State          byte // letter of proc(5)
	Threads        int
}

// System is the OS of a real sandbox, in which the server is PID 1.
type System struct{}

// Signal sends a signal.
func (System) Signal(pid int, sig syscall.Signal) error { return syscall.Kill(pid, sig) }

// SetHostname sets the host name.
func (System) SetHostname(name string) error { return syscall.Sethostname([]byte(name)) }
