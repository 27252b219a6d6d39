package config

import (
	"math"
	"strconv"
	"strings"

	"brood/internal/base/errs"
)

// ParseMiB reads an amount of memory as people write it: 512M, 2G, 1T, with
// an optional B or iB; a bare number is MiB. The result is in MiB.
func ParseMiB(what, s string) (uint64, error) {
	b, err := parse(what, s, 1<<20)
	if err != nil {
		return 0, err
	}
	if b%(1<<20) != 0 {
		return 0, errs.New(errs.InvalidArgument, "%s %q is not a whole number of MiB", what, s)
	}
	return b >> 20, nil
}

// ParseBytes reads a size as people write it; a bare number is bytes. K, M, G
// and T are powers of 1024.
func ParseBytes(what, s string) (uint64, error) { return parse(what, s, 1) }

func parse(what, s string, bare uint64) (uint64, error) {
	text := strings.ToUpper(strings.TrimSpace(s))
	digits := strings.TrimRight(text, "KMGTIB")
	unit := strings.TrimSuffix(strings.TrimSuffix(text[len(digits):], "B"), "I")
	factor, ok := map[string]uint64{"": bare, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[unit]
	if unit == "" && text != digits {
		factor = 1 // an explicit B
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil || n > math.MaxInt64/factor {
		return 0, errs.New(errs.InvalidArgument, "%s %q is not a size: write 512M, 2G or the like", what, s)
	}
	return n * factor, nil
}
