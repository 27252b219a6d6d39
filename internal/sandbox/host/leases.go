package host

import (
	"errors"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox/lease"
)

// held is what a batch at work keeps: the checkpoints it forks, and those made
// for it.
type held struct {
	holds   int
	digests []digest.Digest
}

// HoldBatch says that a batch works: the checkpoints named, and those that were
// made for it, stay until every release was called.
func (h *Host) HoldBatch(b id.Batch, digests ...digest.Digest) (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.batches[b] == nil {
		h.batches[b] = &held{}
	}
	h.batches[b].holds++
	h.batches[b].digests = append(h.batches[b].digests, digests...)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.batches[b].holds--; h.batches[b].holds == 0 {
			delete(h.batches, b)
		}
	}
}

// leases is the book of what keeps which checkpoint now. It is made anew from
// what there is each time, so that it cannot be wrong after a crash.
func (h *Host) leases() (*lease.Book, error) {
	book := &lease.Book{}
	all := h.p.Checkpoints.List()
	for _, cp := range all {
		book.Add(cp.Digest, cp.Record.Temporary != "")
	}
	var failed error
	hold := func(d digest.Digest, kind lease.Kind, who string) {
		if book.Has(d) {
			failed = errors.Join(failed, book.Hold(d, lease.Holder{Kind: kind, ID: who}))
		}
	}
	for _, sb := range h.List() {
		if sb.Origin != nil {
			hold(sb.Origin.Digest, lease.Fork, string(sb.Name))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, cp := range all {
		if cp.Record.Pinned {
			hold(cp.Digest, lease.Pin, string(cp.Name))
		}
		if cp.Record.Temporary != "" && h.batches[cp.Record.Temporary] != nil {
			hold(cp.Digest, lease.Batch, string(cp.Record.Temporary))
		}
		// A temporary one stays for the checkpoints made of its forks (F42);
		// a named one may go: every checkpoint of this driver is whole.
		if p := cp.Manifest.Parent; p != "" && book.Temp(p) {
			hold(p, lease.Child, string(cp.Name))
		}
	}
	for b, what := range h.batches {
		for _, d := range what.digests {
			hold(d, lease.Batch, string(b))
		}
	}
	return book, failed
}

// DropUnused deletes every temporary checkpoint that nothing keeps, also those
// that only such a one has kept.
func (h *Host) DropUnused() error {
	h.dropping.Lock()
	defer h.dropping.Unlock()
	var all error
	for more := true; more; {
		var err error
		more, err = h.dropDue()
		all = errors.Join(all, err)
	}
	return errors.Join(all, h.dropDamaged())
}

// dropDue deletes the temporary checkpoints that nothing keeps now; more says
// that one is gone.
func (h *Host) dropDue() (more bool, all error) {
	book, all := h.leases()
	due := map[digest.Digest]bool{}
	for _, d := range book.Due() {
		due[d] = true
	}
	for _, cp := range h.p.Checkpoints.List() {
		if !due[cp.Digest] || cp.Record.Temporary == "" {
			continue
		}
		err := h.p.Checkpoints.Delete(cp.Name)
		if more = more || err == nil; !errs.Is(err, errs.NotFound) {
			all = errors.Join(all, err)
		}
	}
	return more, all
}

// dropDamaged deletes the temporary checkpoints whose files are lost and whose
// forks and batch are gone. Their digests are not known, only their names.
func (h *Host) dropDamaged() (all error) {
	forked := map[id.Name]bool{}
	for _, sb := range h.List() {
		if sb.Origin != nil {
			forked[sb.Origin.Checkpoint] = true
		}
	}
	for _, cp := range h.p.Checkpoints.Damaged() {
		b := cp.Record.Temporary
		if b == "" || !cp.Lost() || forked[cp.Name] || h.works(b) {
			continue
		}
		if err := h.p.Checkpoints.Delete(cp.Name); !errs.Is(err, errs.NotFound) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// works says whether a batch is at work.
func (h *Host) works(b id.Batch) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.batches[b] != nil
}

// DeleteCheckpoint deletes a checkpoint. While something keeps it that is
// refused, or deferred when whenUnused is set: it goes with the last holder.
func (h *Host) DeleteCheckpoint(name id.Name, whenUnused bool) (deferred bool, err error) {
	if h.p.Checkpoints.IsDamaged(name) {
		return false, h.p.Checkpoints.Delete(name) // nothing can be made of it any more
	}
	cp, err := h.p.Checkpoints.Get(name)
	if err != nil {
		return false, err
	}
	book, err := h.leases()
	if err != nil {
		return false, err
	}
	refused := book.Condemn(cp.Digest)
	switch {
	case refused == nil:
		return false, h.p.Checkpoints.Delete(name)
	case cp.Record.Pinned:
		return false, errs.New(errs.FailedPrecondition, "checkpoint %s is pinned: unpin it first", name)
	case !whenUnused:
		return false, errs.New(errs.FailedPrecondition, "checkpoint %s is in use by %s: remove that first, or delete it with --when-unused", name, book.Users(cp.Digest))
	}
	if err := h.p.Checkpoints.DeleteWhenUnused(name); err != nil {
		return false, err
	}
	return true, h.DropUnused()
}

// replaceable refuses to put something else under the name of a checkpoint that
// a batch forks: the rest of its forks would have nothing to go on from.
func (h *Host) replaceable(name id.Name) error {
	cp, err := h.p.Checkpoints.Get(name)
	if err != nil {
		return nil //nolint:nilerr // there is none, or none that can be forked
	}
	book, err := h.leases()
	if err != nil {
		return err
	}
	for _, holder := range book.Holders(cp.Digest) {
		if holder.Kind == lease.Batch {
			return errs.New(errs.FailedPrecondition, "checkpoint %s is being forked by %s and cannot be replaced: wait for that, or use another name", name, holder)
		}
	}
	return nil
}
