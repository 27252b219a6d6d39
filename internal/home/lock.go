package home

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"brood/internal/base/errs"
)

// Lock is a held lock; the kernel frees it when the process dies.
type Lock struct{ f *flock.Flock }

// What a daemon signs its lock with.
const (
	Starting = "starting"
	Ready    = "ready"
)

// TryLock takes the home's lock called name, or answers AlreadyExists at once
// when another process holds it.
func (h *Home) TryLock(name string) (*Lock, error) {
	f := flock.New(h.lockPath(name), flock.SetPermissions(0o600))
	ok, err := f.TryLock()
	if err != nil {
		return nil, errs.New(errs.Internal, "lock %s: %w", name, err)
	}
	if !ok {
		return nil, errs.New(errs.AlreadyExists, "another process holds the %s lock of %s", name, h.dir)
	}
	return &Lock{f: f}, nil
}

func (h *Home) lockPath(name string) string { return filepath.Join(h.dir, name+".lock") }

// Unlock frees the lock. The file stays: removing it would let two processes
// hold two locks of one name.
func (l *Lock) Unlock() error { return l.f.Unlock() }

// Sign writes into the lock's file which process holds it, and how far that
// is: for the messages of those who find it taken.
func (l *Lock) Sign(state string) error {
	return os.WriteFile(l.f.Path(), fmt.Appendf(nil, "%d %s\n", os.Getpid(), state), 0o600)
}

// Held reports whether a process holds the lock called name. It makes nothing.
func (h *Home) Held(name string) (bool, error) {
	if _, err := os.Stat(h.lockPath(name)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	lock, err := h.TryLock(name)
	switch {
	case err == nil:
		return false, lock.Unlock()
	case errs.Is(err, errs.AlreadyExists):
		return true, nil
	}
	return false, err
}

// Signature is what the last one to sign the lock called name has signed; 0
// when nobody has.
func (h *Home) Signature(name string) (pid int, state string) {
	b, err := os.ReadFile(h.lockPath(name))
	if err != nil {
		return 0, ""
	}
	if _, err := fmt.Sscanf(string(b), "%d %s", &pid, &state); err != nil || pid <= 0 {
		return 0, ""
	}
	return pid, state
}
