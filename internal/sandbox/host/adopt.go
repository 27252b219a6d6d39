package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"brood/internal/base/digest"
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
// without a record are debris; a newer brood's are left alone. One whose record
// was damaged, by hand or by the disk, is kept too: what runs in it may be all
// that somebody has.
func (h *Host) readRecords() ([]*entry, error) {
	folders, err := os.ReadDir(h.p.Home.Sandboxes())
	if err != nil {
		return nil, err
	}
	var all []*entry
	for _, f := range folders {
		sb := id.Sandbox(f.Name())
		var rec record
		err := schema.Read(h.files(sb).record(), &rec)
		if err == nil && rec.ID != sb {
			err = errs.New(errs.DataLoss, "its record is that of sandbox %s", rec.ID)
		}
		switch {
		case errs.Is(err, errs.Unsupported):
			h.p.Log.Warn("a sandbox is left alone", "error", err)
			h.foreign[sb] = true
		case err != nil && !errs.Is(err, errs.NotFound):
			h.p.Log.Error("the record of a sandbox is damaged", "sandbox", sb, "error", err)
			all = append(all, newEntry(damaged(f, err)))
		case err != nil:
			h.p.Log.Warn("a sandbox without a record is removed", "sandbox", sb, "error", err)
			if err := errors.Join(h.p.Driver.Destroy(context.Background(), sb), os.RemoveAll(h.files(sb).dir)); err != nil {
				return nil, err
			}
		default:
			all = append(all, newEntry(rec))
		}
	}
	h.takeNames(all)
	return all, nil
}

// damaged stands for a record that cannot be read. It is never written.
func damaged(folder fs.DirEntry, err error) record {
	rec := record{Sandbox: Sandbox{
		ID: id.Sandbox(folder.Name()), Name: id.Name("damaged-" + digest.Of([]byte(folder.Name())).Short()),
		State: sandbox.Failed, Reason: fmt.Sprintf("its record is damaged, so nothing is known of it; what runs in it goes on until it is removed: %v", err),
	}}
	if info, err := folder.Info(); err == nil {
		rec.CreatedAt = info.ModTime()
	}
	return rec
}

// Known says that there is a record of the sandbox that can be read.
func (s *Sandbox) Known() bool { return s.Root.Digest != "" }

// takeNames gives every sandbox its name. Of two with one name, which only a
// record changed by hand brings about, the older has it, and the younger gets
// one like it.
func (h *Host) takeNames(all []*entry) {
	slices.SortStableFunc(all, func(a, b *entry) int { return a.rec.CreatedAt.Compare(b.rec.CreatedAt) })
	var second []*entry
	for _, e := range all {
		if h.names[e.rec.Name] != nil {
			second = append(second, e)
			continue
		}
		h.names[e.rec.Name] = e
	}
	for _, e := range second {
		was, name := e.rec.Name, h.freeName(e.rec.Name)
		h.p.Log.Warn("two sandboxes have one name: the younger gets another", "sandbox", e.rec.ID, "was", was, "name", name, "older", h.names[was].rec.ID)
		e.change(func(sb *Sandbox) { sb.Name = name })
		h.names[name] = e
		h.logged(h.save(e)) // else the next daemon does the same
	}
}

// freeName is a name like one that is taken.
func (h *Host) freeName(taken id.Name) id.Name {
	for n := 2; ; n++ {
		suffix := fmt.Sprintf("-%d", n)
		base := string(taken)
		base = strings.TrimRight(base[:min(len(base), id.MaxName-len(suffix))], "-")
		if name := id.Name(base + suffix); h.names[name] == nil {
			return name
		}
	}
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
