package host

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// processStart returns when a process started, in clock ticks since boot
// (field 22 of /proc/PID/stat, proc(5)).
func processStart(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in brackets and may hold anything.
	rest := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(rest) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(rest))
	}
	return strconv.ParseUint(string(rest[19]), 10, 64)
}
