package worker

import "syscall"

// peakOf returns the peak of a process that ended, or of one that it waited
// for. Until it executed its program it shared this process's memory, and
// Linux counts that too: a peak that is no larger than ours says nothing.
func peakOf(u *syscall.Rusage) int64 {
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil || u.Maxrss <= own.Maxrss {
		return 0
	}
	return u.Maxrss << 10
}
