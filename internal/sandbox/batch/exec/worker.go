package exec

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
	"brood/internal/sandbox/batch"
	"brood/internal/sandbox/host"
	"brood/internal/sandbox/roster"
)

// worker is the goroutine that owns a batch, and the effects it performs.
type worker struct {
	m       *Manager
	b       *batch.Batch
	bk      *book
	j       *journal
	release func() // the hold on the batch's temporary checkpoints
}

// run lets a batch go on with a first event.
func (m *Manager) run(w *worker, first batch.Event) {
	m.group.Go("batch", func(ctx context.Context) error {
		defer w.bk.finish()
		defer close(w.bk.stopped)
		err := errors.Join(w.loop(ctx, first), w.j.close())
		if ctx.Err() == nil {
			w.bk.halt(err)
		}
		w.release()
		if w.b.Done() {
			err = errors.Join(err, m.p.Host.DropUnused())
		}
		if err != nil && ctx.Err() == nil {
			// The books cannot be written: the batch stands still rather than
			// do what nobody could read later. The daemon goes on.
			m.p.Log.Error("a batch stands still", "batch", w.bk.rec.ID, "error", err)
		}
		return nil
	})
}

func (w *worker) loop(ctx context.Context, ev batch.Event) error {
	wake := time.NewTimer(0)
	defer wake.Stop()
	for {
		if err := w.step(ctx, ev); err != nil {
			return err
		}
		if w.b.Done() {
			return w.end()
		}
		wake.Stop()
		if next := w.b.NextWake(); !next.IsZero() {
			wake.Reset(time.Until(next))
		}
		select {
		case ev = <-w.bk.post:
		case <-wake.C:
			ev = batch.Tick{}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// step journals an event, gives it to the batch and performs the effects.
func (w *worker) step(ctx context.Context, ev batch.Event) error {
	now := time.Now()
	if err := w.j.append(now, ev); err != nil {
		return err
	}
	effects := w.b.Step(now, ev)
	w.clear(ctx, effects)
	w.bk.add(emitted(effects))
	for _, e := range effects {
		w.perform(ctx, e)
	}
	return nil
}

// clear performs the removals among effects, and waits for them: their names
// are free before another fork gets one, and nobody reads of the end of a batch
// while there is something that its books do not name.
func (w *worker) clear(ctx context.Context, effects []batch.Effect) {
	var wg sync.WaitGroup
	for _, e := range effects {
		if r, ok := e.(batch.RemoveFork); ok {
			wg.Add(1)
			w.async("remove", func() batch.Event {
				defer wg.Done()
				return w.remove(ctx, r)
			})
		}
	}
	wg.Wait()
}

func emitted(effects []batch.Effect) []batch.Record {
	var all []batch.Record
	for _, e := range effects {
		if out, ok := e.(batch.Emit); ok {
			all = append(all, out.Record)
		}
	}
	return all
}

// end writes the books for good.
func (w *worker) end() error {
	w.bk.mu.Lock()
	rec := w.bk.rec
	rec.Records = w.bk.records
	rec.Cancelled = w.b.Cancelled()
	rec.DoneAt = time.Now()
	rec.Summary = rec.Records[len(rec.Records)-1].Done
	// Field by field: the others never change, and are read without the lock.
	w.bk.rec.Cancelled, w.bk.rec.DoneAt, w.bk.rec.Summary = rec.Cancelled, rec.DoneAt, rec.Summary
	w.bk.mu.Unlock()
	if err := schema.Write(w.m.record(rec.ID), rec, home.Durable); err != nil {
		return err
	}
	return os.Remove(w.m.journal(rec.ID))
}

// perform does one effect on this machine, the only one there is. What takes
// time runs in a goroutine of its own; the batch bounds how many there are.
func (w *worker) perform(ctx context.Context, e batch.Effect) {
	m := w.m
	switch e := e.(type) {
	case batch.AskMachines:
		w.async("ask", func() batch.Event {
			return batch.Machines{Ask: e.ID, List: []roster.Machine{m.room.machine(w.bk.rec.ID)}}
		})
	case batch.Reserve:
		w.async("reserve", func() batch.Event { return m.room.reserve(w.bk.rec.ID, e) })
	case batch.Release:
		m.room.give(w.bk.rec.ID, e.Grant, e.Count)
	case batch.EnsureCheckpoint:
		w.async("sync", func() batch.Event { return w.ensure(e) })
	case batch.StartFork:
		w.async("fork", func() batch.Event { return w.fork(ctx, e) })
	case batch.DeleteTempCheckpoint:
		// Its hold ends with the batch; the host deletes it then.
	case batch.RemoveFork, batch.StopCopy, batch.Emit:
	}
}

// async performs an effect beside the batch and reports the answer.
func (w *worker) async(name string, f func() batch.Event) {
	w.m.group.Go(name, func(context.Context) error {
		w.bk.report(f())
		return nil
	})
}

// ensure answers for a checkpoint that should be here already.
func (w *worker) ensure(e batch.EnsureCheckpoint) batch.Event {
	if _, err := w.m.p.Checkpoints.ByDigest(e.Digest); err != nil {
		return batch.SyncFailed{Copy: e.ID, Machine: e.Machine, Error: err.Error()}
	}
	return batch.Synced{SyncProgress: batch.SyncProgress{Copy: e.ID, Machine: e.Machine}}
}

func (w *worker) fork(ctx context.Context, e batch.StartFork) batch.Event {
	p := host.ForkParams{Name: e.Name, Batch: w.bk.rec.ID, Index: e.Index, Token: uint64(e.ID)}
	cp, err := w.m.p.Checkpoints.ByDigest(e.Digest)
	if err == nil {
		p.Checkpoint = cp.Name
		var f host.Forked
		if f, err = w.m.p.Host.Fork(ctx, p); err == nil {
			w.m.room.give(w.bk.rec.ID, e.Grant, 1) // the place is the sandbox's own now
			return batch.ForkReady{Token: e.ID, Index: e.Index, Machine: e.Machine, ForkMS: uint64(f.Took.Milliseconds())}
		}
	}
	cause := batch.Own
	if errs.Is(err, errs.ResourceExhausted) || errs.Is(err, errs.InsufficientDisk) {
		cause = batch.Capacity
	}
	return batch.ForkFailed{Token: e.ID, Index: e.Index, Machine: e.Machine, Cause: cause, Error: errs.Text(err)}
}

// remove takes back what a start made, and only that.
func (w *worker) remove(ctx context.Context, e batch.RemoveFork) batch.Event {
	sb, err := w.m.p.Host.Get(e.Name)
	if err == nil && sb.Origin != nil && sb.Origin.Batch == w.bk.rec.ID && sb.Origin.Token == uint64(e.Token) {
		err = w.m.p.Host.Delete(context.WithoutCancel(ctx), e.Name)
	}
	if err != nil && !errs.Is(err, errs.NotFound) {
		w.m.p.Log.Error("remove a fork", "sandbox", e.Name, "error", err)
	}
	return batch.ForkRemoved{Token: e.Token}
}

// grant names a reservation.
type grant struct {
	batch id.Batch
	id    batch.EffectID
}
