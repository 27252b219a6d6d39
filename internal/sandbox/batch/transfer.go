package batch

import (
	"slices"

	"brood/internal/base/digest"
)

// transfer is a copy of a checkpoint to a machine that lacks it. At most one
// per machine and digest runs; all parts there that need it wait for it.
type transfer struct {
	id      EffectID
	source  int
	machine *machine
	shown   int64 // when progress was recorded last; 0: never
	last    SyncProgress
}

// ensure starts the copy unless it runs.
func (b *Batch) ensure(m *machine, source int) {
	s := &b.sources[source]
	for _, t := range m.copies {
		if b.sources[t.source].Digest == s.Digest {
			return
		}
	}
	t := &transfer{id: b.newID(), source: source, machine: m}
	m.copies = append(m.copies, t)
	if !slices.Contains(m.copied, s.Digest) {
		m.copied = append(m.copied, s.Digest)
	}
	b.copies[t.id] = t
	b.do(b.ensureEffect(t))
}

func (b *Batch) ensureEffect(t *transfer) EnsureCheckpoint {
	s := &b.sources[t.source]
	return EnsureCheckpoint{ID: t.id, Machine: t.machine.name, Name: s.name(), Digest: s.Digest}
}

func (s *Source) name() string {
	if s.Checkpoint != "" {
		return s.Checkpoint
	}
	_, name, _ := ParseSource(s.Ref)
	return name
}

func (b *Batch) onProgress(e SyncProgress) {
	t := b.copies[e.Copy]
	if t == nil {
		return
	}
	t.last = e
	if t.shown == 0 || b.now-t.shown >= int64(SyncEvery) {
		b.showCopy(t, false, false)
	}
}

func (b *Batch) showCopy(t *transfer, done, verified bool) {
	t.shown = b.now
	s := &b.sources[t.source]
	b.emit(Record{Sync: &Sync{
		Name: s.name(), Digest: s.Digest, From: t.last.From,
		BytesDone: t.last.BytesDone, BytesTotal: t.last.BytesTotal, BytesReused: t.last.BytesReused,
		Done: done, Verified: verified, To: t.machine.name,
	}})
}

// endCopy records the end of a copy and forgets it.
func (b *Batch) endCopy(t *transfer, verified bool) {
	b.showCopy(t, true, verified)
	delete(b.copies, t.id)
	t.machine.copies = slices.DeleteFunc(t.machine.copies, func(o *transfer) bool { return o == t })
}

func (b *Batch) onSynced(e Synced) {
	t := b.copies[e.Copy]
	if t == nil {
		return
	}
	if e.From != "" || e.BytesDone > 0 || e.BytesTotal > 0 || e.BytesReused > 0 {
		t.last = e.SyncProgress
	}
	b.endCopy(t, true)
	m, d := t.machine, b.sources[t.source].Digest
	m.synced = append(m.synced, d)
	for _, p := range b.waiting(m, d) {
		p.state = startable
	}
	b.fill(m)
}

func (b *Batch) onSyncFailed(e SyncFailed) {
	t := b.copies[e.Copy]
	if t == nil {
		return
	}
	b.endCopy(t, false)
	m, s := t.machine, &b.sources[t.source]
	why := failure{CodeSyncFailed, "copying " + s.name() + " to " + string(m.name) + ": " + orUnknown(e.Error)}
	for _, p := range b.waiting(m, s.Digest) {
		forks := p.open
		b.release(p, len(forks))
		p.open = nil
		b.reap(p)
		b.elsewhere(p, forks, why, true)
	}
}

// waiting returns the parts on m that wait for the copy of d.
func (b *Batch) waiting(m *machine, d digest.Digest) []*part {
	var out []*part
	for _, p := range m.parts {
		if p.state == copying && b.digestOf(p) == d {
			out = append(out, p)
		}
	}
	return out
}

// stopUnwanted ends the copies on m that no part needs.
func (b *Batch) stopUnwanted(m *machine) {
	for _, t := range slices.Clone(m.copies) {
		wanted := slices.ContainsFunc(m.parts, func(p *part) bool {
			return (p.state == copying || p.state == reserving) && b.digestOf(p) == b.sources[t.source].Digest
		})
		if !wanted {
			b.do(StopCopy{ID: b.newID(), Copy: t.id, Machine: m.name})
			b.endCopy(t, false)
		}
	}
}
