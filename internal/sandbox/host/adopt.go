package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/sandbox"
)

// adoptAtOnce bounds how many sandboxes are taken over at the same time.
const adoptAtOnce = 8

// adopt makes what is on disk and what runs agree again after a daemon ended
// in whatever way.
func (h *Host) adopt(ctx context.Context) error {
	entries, err := h.readRecords()
	if err != nil {
		return err
	}
	live, err := h.p.Driver.List(ctx)
	if err != nil {
		return fmt.Errorf("see what runs: %w", err)
	}
	runs := map[id.Sandbox]bool{}
	for _, l := range live {
		runs[l.ID] = l.Running
	}
	known := map[id.Sandbox]bool{}
	for _, e := range entries {
		known[e.rec.ID] = true
	}
	for _, l := range live {
		if !known[l.ID] && !h.foreign[l.ID] {
			h.p.Log.Info("remove what was half made", "sandbox", l.ID)
			if err := h.p.Driver.Destroy(ctx, l.ID); err != nil {
				return err
			}
		}
	}
	results := life.Each(ctx, len(entries), adoptAtOnce, func(ctx context.Context, i int) error {
		return h.adoptOne(ctx, entries[i], runs[entries[i].rec.ID])
	})
	return errors.Join(append(results, h.DropUnused())...)
}

// readRecords returns the sandboxes of this home, their names taken. Folders
// without a record are debris; a newer brood's are left alone.
func (h *Host) readRecords() ([]*entry, error) {
	folders, err := os.ReadDir(h.p.Home.Sandboxes())
	if err != nil {
		return nil, err
	}
	var all []*entry
	for _, f := range folders {
		sb := id.Sandbox(f.Name())
		dir := filepath.Join(h.p.Home.Sandboxes(), f.Name())
		var rec record
		err := schema.Read(h.files(sb).record(), &rec)
		switch {
		case errs.Is(err, errs.Unsupported):
			h.p.Log.Warn("a sandbox is left alone", "error", err)
			h.foreign[sb] = true
		case err != nil || rec.ID != sb || h.names[rec.Name] != nil:
			h.p.Log.Warn("a sandbox without a usable record is removed", "sandbox", sb, "error", err)
			if err := errors.Join(h.p.Driver.Destroy(context.Background(), sb), os.RemoveAll(dir)); err != nil {
				return nil, err
			}
		default:
			e := newEntry(rec)
			h.names[rec.Name] = e
			all = append(all, e)
		}
	}
	return all, nil
}

func (h *Host) adoptOne(ctx context.Context, e *entry, runs bool) error {
	sb := e.view()
	switch sb.State {
	case sandbox.Provisioning, sandbox.Deleting:
		h.p.Log.Info("remove what was half made", "sandbox", sb.Name, "state", sb.State.String())
		if err := h.remove(ctx, e); err != nil {
			h.p.Log.Error("it is tried again", "sandbox", sb.Name, "error", err)
			return nil
		}
		h.forget(e)
		return nil
	case sandbox.Failed:
		return nil
	}
	if !runs {
		h.logged(h.fail(e, "its processes ended while no daemon was there to see it"))
		return nil
	}
	if err := h.takeOver(ctx, e); err != nil {
		h.p.Log.Warn("a sandbox does not answer", "sandbox", sb.Name, "error", err)
		h.logged(h.fail(e, "it runs, but its guest program does not answer: "+err.Error()))
	}
	return nil
}

// takeOver speaks with a guest that runs already. A capture that the last
// daemon began is over: whoever is frozen goes on.
func (h *Host) takeOver(ctx context.Context, e *entry) error {
	sb := e.view()
	ch, err := h.p.Driver.Channel(ctx, sb.ID)
	if err != nil {
		return err
	}
	g, err := h.connect(ctx, e, ch)
	if err != nil {
		return err
	}
	if err := g.Thaw(ctx); err != nil {
		return err
	}
	h.watch(e)
	return nil
}

// fail says that a sandbox ended by itself. What cannot be written down, on a
// full disk, the next daemon sees too.
func (h *Host) fail(e *entry, reason string) error {
	e.change(func(sb *Sandbox) { sb.State, sb.Reason = sandbox.Failed, reason })
	return h.save(e)
}
