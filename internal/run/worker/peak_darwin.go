package worker

import (
	"os"
	"syscall"
)

// peakOf returns the peak of a process that ended, or of one that it waited
// for: darwin counts in bytes.
func peakOf(state *os.ProcessState) int64 {
	if u, ok := state.SysUsage().(*syscall.Rusage); ok {
		return u.Maxrss
	}
	return 0
}
