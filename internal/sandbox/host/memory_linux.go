package host

import (
	"bufio"
	"fmt"
	"os"
)

// memory returns this machine's memory and what of it is free for new
// programs, in MiB (MemTotal and MemAvailable of proc(5)); zeros when the
// kernel does not say.
func memory() (total, free uint64) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var kib uint64
		if _, err := fmt.Sscanf(lines.Text(), "MemTotal: %d kB", &kib); err == nil {
			total = kib >> 10
		}
		if _, err := fmt.Sscanf(lines.Text(), "MemAvailable: %d kB", &kib); err == nil {
			free = kib >> 10
		}
	}
	return total, free
}
