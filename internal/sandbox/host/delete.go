package host

import (
	"context"
	"errors"
	"os"

	"brood/internal/base/errs"
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
	return h.dropTemporary(e.view().Origin)
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

// dropTemporary deletes a temporary checkpoint that nothing needs any more.
func (h *Host) dropTemporary(o *Origin) error {
	if o == nil {
		return nil
	}
	cp, err := h.p.Checkpoints.ByDigest(o.Digest)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return h.DropIfUnused(cp.Name)
}

// DropIfUnused deletes a temporary checkpoint unless a fork of it is there, a
// batch still works with it, or another checkpoint has it as parent (F42).
func (h *Host) DropIfUnused(name id.Name) error {
	cp, err := h.p.Checkpoints.Get(name)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if cp.Record.Temporary == "" || len(h.ForksOf(cp.Digest)) > 0 || len(h.p.Checkpoints.Children(cp.Digest)) > 0 || h.batchWorks(cp.Record.Temporary) {
		return nil
	}
	err = h.p.Checkpoints.Delete(name)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}

// HoldBatch says that a batch works: temporary checkpoints of it stay. The
// returned function ends that.
func (h *Host) HoldBatch(b id.Batch) (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.batches[b]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.batches[b]--; h.batches[b] <= 0 {
			delete(h.batches, b)
		}
	}
}

func (h *Host) batchWorks(b id.Batch) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.batches[b] > 0
}

// DropUnused deletes every temporary checkpoint that nothing needs: what is
// left to do after a daemon was killed.
func (h *Host) DropUnused() error {
	var all error
	for _, cp := range h.p.Checkpoints.List() {
		if cp.Record.Temporary != "" {
			all = errors.Join(all, h.DropIfUnused(cp.Name))
		}
	}
	return all
}

// DeleteCheckpoint deletes a checkpoint. While forks of it are there it is
// refused, or deferred when whenUnused is set: it goes with the last of them.
func (h *Host) DeleteCheckpoint(name id.Name, whenUnused bool) (deferred bool, err error) {
	cp, err := h.p.Checkpoints.Get(name)
	if err != nil {
		return false, err
	}
	forks := h.ForksOf(cp.Digest)
	if len(forks) == 0 && !h.batchWorks(cp.Record.Temporary) {
		return false, h.p.Checkpoints.Delete(name)
	}
	if !whenUnused {
		return false, errs.New(errs.FailedPrecondition, "checkpoint %s is in use by %d forks (%s): remove them first, or delete it with --when-unused", name, len(forks), some(forks))
	}
	if err := h.p.Checkpoints.DeleteWhenUnused(name); err != nil {
		return false, err
	}
	return true, h.DropIfUnused(name)
}

// some names the first few of many.
func some(names []id.Name) string {
	text := ""
	for i, n := range names {
		if i == 5 {
			return text + ", …"
		}
		if i > 0 {
			text += ", "
		}
		text += string(n)
	}
	return text
}
