package host

import (
	"context"
	"os"

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
	e.change(func(sb *Sandbox) { sb.State = sandbox.Deleting })
	if err := h.save(e); err != nil {
		return err
	}
	// From here on it goes, also when the caller does.
	ctx = context.WithoutCancel(ctx)
	if err := h.discard(ctx, e); err != nil {
		return err
	}
	h.forget(e)
	if e.view().Origin == nil {
		return nil
	}
	return h.DropUnused()
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
