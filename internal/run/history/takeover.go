package history

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"brood/internal/home"
)

// takeOver moves the runs of all journals into the database. made says that the
// database is new, so that no head is right about it.
func (h *History) takeOver(ctx context.Context, made bool) error {
	files, err := os.ReadDir(h.journals())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return home.DiskError(err, "history")
	}
	for _, f := range files {
		if !f.Type().IsRegular() {
			continue
		}
		if err := h.takeOverOne(ctx, journal{filepath.Join(h.journals(), f.Name())}, made); err != nil {
			return err
		}
	}
	return nil
}

func (h *History) takeOverOne(ctx context.Context, j journal, made bool) error {
	info, err := os.Stat(j.file)
	if err != nil {
		return nil // another process dropped it
	}
	unlock, err := j.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	all, end, err := j.runs()
	if err != nil {
		return err
	}
	if made {
		end = 0
	}
	if len(all) > 0 {
		if err := h.insert(ctx, all); err != nil {
			return err
		}
	}
	if time.Since(info.ModTime()) > journalAge {
		return home.DiskError(os.Remove(j.file), "history")
	}
	if len(all) == 0 && !made {
		return nil
	}
	return home.DiskError(os.Truncate(j.file, end), "history")
}

// insert adds runs that teach nothing.
func (h *History) insert(ctx context.Context, all []Run) error {
	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	for i := range all {
		if err := insert(ctx, tx, &all[i]); err != nil {
			return err
		}
	}
	n, _, err := workspace(ctx, tx, all[0].Workspace) // a journal is of one
	if err != nil {
		return err
	}
	if _, err := forget(ctx, tx, n); err != nil {
		return err
	}
	return tx.Commit()
}
