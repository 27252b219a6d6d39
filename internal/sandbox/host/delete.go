package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"brood/internal/base/id"
	"brood/internal/sandbox"
)

// Delete ends a sandbox and removes all it held. The checkpoint it was forked
// from goes too, when that was temporary and this its last fork.
func (h *Host) Delete(ctx context.Context, name id.Name) error {
	e, err := h.entry(name)
	if err != nil {
		return err
	}
	release, err := e.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	h.intendToDelete(e)
	// From here on it goes, also when the caller does.
	ctx = context.WithoutCancel(ctx)
	if err := h.remove(ctx, e); err != nil {
		return err
	}
	h.forget(e)
	if e.view().Origin == nil {
		return nil
	}
	return h.DropUnused()
}

// intendToDelete says on disk that a sandbox is to go. A full disk does not
// keep it from going, which frees space: then its record goes first, and a
// folder without one is debris to the next daemon.
func (h *Host) intendToDelete(e *entry) {
	e.change(func(sb *Sandbox) { sb.State = sandbox.Deleting })
	err := h.save(e)
	if err == nil {
		return
	}
	h.p.Log.Warn("delete a sandbox without having said so on disk", "sandbox", e.view().Name, "error", err)
	if err := os.Remove(h.files(e.view().ID).record()); !errors.Is(err, fs.ErrNotExist) {
		h.logged(err)
	}
}

// deleteAgain is how long after a removal that failed it is tried again.
const deleteAgain = 2 * time.Second

// remove is discard that is tried again later, by the daemon itself, when it
// fails: the sandbox keeps its name until then, as one that is being deleted.
func (h *Host) remove(ctx context.Context, e *entry) error {
	err := h.discard(ctx, e)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stuck = time.Time{}
	if err != nil {
		e.rec.State, e.stuck = sandbox.Deleting, time.Now()
	}
	return err
}

// forgetRemoved frees the name of a sandbox that was not made, unless something
// of it is left.
func (h *Host) forgetRemoved(e *entry) {
	e.mu.Lock()
	left := !e.stuck.IsZero()
	e.mu.Unlock()
	if !left {
		h.forget(e)
	}
}

// discard removes processes and folder of a sandbox, whatever there is.
func (h *Host) discard(ctx context.Context, e *entry) error {
	e.mu.Lock()
	g, stop, sb := e.guest, e.stop, e.rec.ID
	e.guest, e.stop = nil, nil
	e.mu.Unlock()
	if stop != nil {
		stop()
	}
	if g != nil {
		_ = g.Close()
	}
	if err := h.p.Driver.Destroy(ctx, sb); err != nil {
		return err
	}
	return os.RemoveAll(h.files(sb).dir)
}
