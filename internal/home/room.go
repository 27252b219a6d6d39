package home

import (
	"errors"
	"fmt"
	"strconv"
	"syscall"

	"brood/internal/base/errs"
)

const (
	floorBytes    = 5_000_000_000
	floorFraction = 20 // one twentieth
)

// Room answers InsufficientDisk when fewer than minFree bytes would stay free
// on dir's filesystem after need more were written. A minFree of 0 stands for
// the larger of 5 GB and 5 % of the filesystem (F26). The fact missing_bytes
// says how many to free.
func Room(dir string, need, minFree uint64) error {
	free, total, err := space(dir)
	if err != nil {
		return errs.New(errs.Internal, "free space of %s: %w", dir, err)
	}
	if minFree == 0 {
		minFree = max(floorBytes, total/floorFraction)
	}
	want := need + minFree
	if want < need {
		want = ^uint64(0)
	}
	if want <= free {
		return nil
	}
	return errs.With(errs.New(errs.InsufficientDisk,
		"not enough disk: %s are needed and %s must stay free at %s, where %s are free: free %s more, or lower min_free (in config.yaml of the home, or BROOD_MIN_FREE) and make the daemon read it with `brood daemon restart`",
		Bytes(need), Bytes(minFree), dir, Bytes(free), Bytes(want-free)),
		"missing_bytes", strconv.FormatUint(want-free, 10))
}

// DiskError gives an error of the file system its code: InsufficientDisk for
// a full disk or quota, PermissionDenied (for a read-only one too), else Internal. A code that it
// already has stays.
func DiskError(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	switch {
	case errs.Is(err, errs.InsufficientDisk) && errs.Text(err) != err.Error(): // not said yet
		return errs.New(errs.InsufficientDisk, "%s: the disk is full: free some space (%w)", what, err)
	case errs.CodeOf(err) != errs.Internal:
		return fmt.Errorf("%s: %w", what, err)
	case errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EROFS):
		return errs.New(errs.PermissionDenied, "%s: %w", what, err)
	}
	return errs.New(errs.Internal, "%s: %w", what, err)
}

// Bytes writes a size for people, in powers of 1000.
func Bytes(n uint64) string {
	units := []string{"bytes", "kB", "MB", "GB", "TB", "PB", "EB"}
	v, i := float64(n), 0
	for v >= 999.95 && i < len(units)-1 {
		v /= 1000
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
