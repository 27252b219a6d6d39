package worker

import (
	"os"
	"syscall"
	"time"

	"brood/internal/base/errs"
)

// ending is what the system says of a process that was waited for.
type ending struct {
	status syscall.WaitStatus
	usage  *syscall.Rusage
}

// endingOf waits for the end of a process.
func endingOf(p *os.Process) (ending, error) {
	state, err := p.Wait()
	if err != nil {
		return ending{}, err
	}
	status, known := state.Sys().(syscall.WaitStatus)
	usage, counted := state.SysUsage().(*syscall.Rusage)
	if !known || !counted {
		return ending{}, errs.New(errs.Unsupported, "this system does not say how a process ended")
	}
	return ending{status, usage}, nil
}

// exit is the exit code, and the signal that ended the process.
func (e ending) exit() (int, string) {
	if e.status.Signaled() {
		return 128 + int(e.status.Signal()), signalName(e.status.Signal())
	}
	return e.status.ExitStatus(), ""
}

// byKey says that an exit code is that of a process which a key of the terminal
// ended, or that of a shell or program that tells of it.
func byKey(exit int) bool {
	return exit == 128+int(syscall.SIGINT) || exit == 128+int(syscall.SIGQUIT)
}

// cpu is the time of the process, and of those that it waited for.
func (e ending) cpu() time.Duration {
	return time.Duration(e.usage.Utime.Nano() + e.usage.Stime.Nano())
}
