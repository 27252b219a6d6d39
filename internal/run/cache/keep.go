package cache

import (
	"context"
	"errors"
	"slices"
	"syscall"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/run"
)

// local are causes that lie with this machine and say nothing about an entry.
var local = []error{
	syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EACCES, syscall.EPERM,
	syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM,
}

func ofThisMachine(err error) bool {
	return errs.Is(err, errs.InsufficientDisk) || errs.Is(err, errs.PermissionDenied) ||
		slices.ContainsFunc(local, func(cause error) bool { return errors.Is(err, cause) })
}

// Restore makes the task's outputs what they were; touched says that something
// had to be changed. On an error with touched false the tree is as it was; on
// one with touched true the outputs are incomplete, and the task must run. An
// entry that cannot be restored is dropped, so that the task's next save
// replaces it; one that this machine had no room or no right to restore is good,
// and the save that follows leaves it alone. waits is called when another run
// writes there.
func (h *Hit) Restore(ctx context.Context, waits func(beside id.Task)) (touched bool, err error) {
	touched, err = h.restore(ctx, waits)
	if err != nil && ofThisMachine(err) {
		h.c.mu.Lock()
		defer h.c.mu.Unlock()
		if h.c.kept == nil {
			h.c.kept = map[run.Key]error{}
		}
		h.c.kept[h.entry.Key] = err
	}
	return touched, err
}

// refuseReplacing says why the result for a key must not be replaced.
func (c *Cache) refuseReplacing(key run.Key) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.kept[key]; err != nil {
		return errs.New(errs.FailedPrecondition, "the stored result is kept, which could not be put back here: %w", err)
	}
	return nil
}
