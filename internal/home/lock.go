package home

import (
	"path/filepath"

	"github.com/gofrs/flock"

	"brood/internal/base/errs"
)

// Lock is a held lock; the kernel frees it when the process dies.
type Lock struct{ f *flock.Flock }

// TryLock takes the home's lock called name, or answers AlreadyExists at once
// when another process holds it.
func (h *Home) TryLock(name string) (*Lock, error) {
	f := flock.New(filepath.Join(h.dir, name+".lock"), flock.SetPermissions(0o600))
	ok, err := f.TryLock()
	if err != nil {
		return nil, errs.New(errs.Internal, "lock %s: %w", name, err)
	}
	if !ok {
		return nil, errs.New(errs.AlreadyExists, "another process holds the %s lock of %s", name, h.dir)
	}
	return &Lock{f: f}, nil
}

// Unlock frees the lock. The file stays: removing it would let two processes
// hold two locks of one name.
func (l *Lock) Unlock() error { return l.f.Unlock() }
