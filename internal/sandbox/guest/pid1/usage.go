//go:build linux

package pid1

import (
	"bytes"
	"fmt"
	"os"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/proto"
)

// usage reads what the sandbox uses: all memory that is not free (proc(5)).
func usage() (proto.UsageResult, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return proto.UsageResult{}, errs.New(errs.Internal, "what the sandbox uses: %w", err)
	}
	var total, free uint64
	for line := range bytes.Lines(b) {
		_, _ = fmt.Sscanf(string(line), "MemTotal: %d kB", &total)
		_, _ = fmt.Sscanf(string(line), "MemFree: %d kB", &free)
	}
	if total == 0 || free > total {
		return proto.UsageResult{}, errs.New(errs.Internal, "what the sandbox uses: /proc/meminfo says total %d kB, free %d kB", total, free)
	}
	return proto.UsageResult{Memory: (total - free) << 10}, nil
}
