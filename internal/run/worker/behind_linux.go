package worker

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// fromBehind calls f so that it may change the terminal from the background:
// SIGTTOU, which would stop this program, is blocked. It is for this thread
// alone, so that no process started meanwhile inherits it.
func fromBehind(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var set, before unix.Sigset_t
	set.Val[0] = 1 << (unix.SIGTTOU - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, &before); err != nil {
		return // a stopped program would be worse than a terminal that is not ours
	}
	defer unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) //nolint:errcheck // it was valid
	f()
}
