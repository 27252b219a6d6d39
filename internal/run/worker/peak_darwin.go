package worker

import "syscall"

// peakOf returns the peak of a process that ended, or of one that it waited
// for: darwin counts in bytes.
func peakOf(u *syscall.Rusage) int64 { return u.Maxrss }
