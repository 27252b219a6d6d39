// Package early takes over what sandboxes' helper processes do that needs
// nothing of gVisor, before gVisor's packages are initialized: that takes four
// times the processor time of the rest of such a process, and waits twice for
// the kernel's RCU.
//
// gVisor starts three processes for a sandbox. The first makes an empty root,
// gives up capabilities and replaces itself by the second, which is the
// sandbox; the third unmounts /proc when the sandbox needs it no more. The first
// and the third are done here. What they do is gVisor's own, step by step
// (runsc/cmd/boot.go, chroot.go, umount.go of the pinned version); a test holds
// the sandboxes of both ways against each other. A start that is asked for in any
// other words than the launcher's is left to gVisor, with debug logs among them.
//
// Go initializes packages in the order of their import paths as far as their
// imports allow; so this one imports little.
package early

import (
	"os"
	"syscall"
)

// ConfigFlags are gVisor's flags of every sandbox, but for its state directory,
// as the launcher gives them and gVisor passes them on.
var ConfigFlags = []string{
	"--platform=systrap",
	"--network=none", // loopback works inside
	"--ignore-cgroups=true",
	"--directfs=true",
	"--overlay2=root:memory",
	"--file-access=exclusive",
	"--host-uds=none",
	"--host-settings=ignore", // advice for administrators, 1 ms each start
}

// selfPath is this program, also after the change of the root.
const selfPath = "/proc/self/exe"

func init() {
	if fd, dir, ok := parseUmount(os.Args); ok {
		exit(umountWhenTold(fd, dir))
	}
	if second, ok := parseBoot(os.Args); ok {
		exit(firstStart(second))
	}
}

// exit ends the process as gVisor ends it when it fails.
func exit(err error) {
	if err == nil {
		os.Exit(0)
	}
	_, _ = os.Stderr.WriteString(err.Error() + "\n")
	os.Exit(128)
}

// failed says what could not be done.
type failed struct {
	what string
	err  error
}

func (f *failed) Error() string { return f.what + ": " + f.err.Error() }
func (f *failed) Unwrap() error { return f.err }

// doing names an error after what was tried; nil stays nil.
func doing(what string, err error) error {
	if err == nil {
		return nil
	}
	return &failed{what, err}
}

// step is one of those that are done in turn until one fails.
type step struct {
	what string
	do   func() error
}

func inTurn(steps ...step) error {
	for _, s := range steps {
		if err := s.do(); err != nil {
			return doing(s.what, err)
		}
	}
	return nil
}

// raw makes a system call that the syscall package has no function for. The
// errors of the kernel are plain numbers here.
func raw(number, a, b, c uintptr) error {
	if _, _, errno := syscall.RawSyscall(number, a, b, c); errno != 0 {
		return errno
	}
	return nil
}
