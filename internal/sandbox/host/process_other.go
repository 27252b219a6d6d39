//go:build !linux

package host

import "brood/internal/base/errs"

func processStart(int) (uint64, error) {
	return 0, errs.New(errs.Unsupported, "sandboxes run on Linux only")
}
