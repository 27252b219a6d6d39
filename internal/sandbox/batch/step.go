package batch

import (
	"slices"
	"time"

	"brood/internal/base/id"
)

// Step takes one event and returns what is to be done, in order. now comes
// from a clock that does not go back while the process lives; if it does, the
// batch's own time stands still meanwhile.
func (b *Batch) Step(now time.Time, ev Event) []Effect {
	b.now = max(b.now, now.UnixNano())
	switch e := ev.(type) {
	case Tick:
		b.onTick()
	case Machines:
		b.onMachines(e)
	case Reserved:
		b.hear(e.Machine)
		b.onReserved(e)
	case ReserveRefused:
		b.hear(e.Machine)
		b.onRefused(e)
	case SyncProgress:
		b.hear(e.Machine)
		b.onProgress(e)
	case Synced:
		b.hear(e.Machine)
		b.onSynced(e)
	case SyncFailed:
		b.hear(e.Machine)
		b.onSyncFailed(e)
	case ForkStarted:
		b.hear(e.Machine)
		b.onStarted(e)
	case ForkReady:
		b.hear(e.Machine)
		b.onReady(e)
	case ForkFailed:
		b.hear(e.Machine)
		b.onFailed(e)
	case ForkRemoved:
		delete(b.removals, e.Token)
	case MachineFailed:
		if m := b.machines[e.Machine]; m != nil {
			b.failMachine(m, orUnknown(e.Error))
		}
	case Beat:
		b.onBeat(e)
	case Cancel:
		b.onCancel()
	case Restarted:
		b.onRestarted(e)
	}
	b.settle()
	out := b.out
	b.out = nil
	return out
}

// NextWake returns when the batch wants a Tick at the latest if nothing else
// happens; zero when it waits for events alone.
func (b *Batch) NextWake() time.Time {
	var at int64
	sooner := func(t int64) {
		if at == 0 || t < at {
			at = t
		}
	}
	if b.asked != 0 {
		sooner(b.askedAt + int64(askAgain))
	}
	for _, m := range b.machines {
		if b.watched(m) {
			sooner(m.heard + int64(BeatLimit))
		}
	}
	if at == 0 {
		return time.Time{}
	}
	return time.Unix(0, at)
}

// watched reports whether a machine's silence counts: it has work, and it is
// not this one, which is silent only when the batch is.
func (b *Batch) watched(m *machine) bool { return len(m.parts) > 0 && m.name != id.Local }

func (b *Batch) onTick() {
	for _, name := range b.machineNames() {
		m := b.machines[name]
		if b.watched(m) && b.now-m.heard >= int64(BeatLimit) {
			b.failMachine(m, "no sign of life for "+BeatLimit.String())
		}
	}
	if b.asked != 0 && b.now-b.askedAt >= int64(askAgain) {
		b.asked = 0
	}
}

func (b *Batch) machineNames() []id.Machine {
	names := make([]id.Machine, 0, len(b.machines))
	for name := range b.machines {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (b *Batch) hear(name id.Machine) {
	if m := b.machines[name]; m != nil {
		m.heard = b.now
	}
}

func (b *Batch) onBeat(e Beat) {
	m := b.machines[e.Machine]
	if m == nil {
		return
	}
	m.heard = b.now
	if e.FreeMemoryMiB > 0 {
		b.measure(m, m.total, e.FreeMemoryMiB)
		b.fill(m)
	}
}

func (b *Batch) onMachines(e Machines) {
	if e.Ask != 0 && e.Ask < b.round {
		return // an older answer that was overtaken
	}
	b.round = max(b.round, e.Ask)
	if e.Ask == b.asked {
		b.asked = 0
	}
	b.place(e.List)
	for i := range e.List {
		if m := b.machines[e.List[i].Name]; m != nil {
			m.limit = e.List[i].StartLimit
			b.measure(m, e.List[i].MemoryMiB, e.List[i].FreeMemoryMiB)
			b.fill(m)
		}
	}
	if b.starved() && find(e.List, b.target) == nil {
		b.failMachine(b.machines[b.target], "it is offline")
	}
}

// settle asks for what is missing and ends the batch when every fork has its
// end.
func (b *Batch) settle() {
	if b.done {
		return
	}
	if b.asked == 0 && (len(b.pending) > 0 || b.starved()) {
		b.asked, b.askedAt = b.newID(), b.now
		b.do(AskMachines{ID: b.asked, Only: b.Target()})
	}
	if b.ok+b.failed == len(b.forks) {
		b.finish()
	}
}

func (b *Batch) finish() {
	b.done = true
	b.asked = 0
	s := Summary{
		OK: uint32(b.ok), Failed: uint32(b.failed), ElapsedMS: b.elapsedMS(),
		PerHost: map[id.Machine]uint32{}, PeakParallel: map[id.Machine]uint32{},
	}
	for name, m := range b.machines {
		if m.ready > 0 {
			s.PerHost[name] = uint32(m.ready)
		}
		if m.peak > 0 {
			s.PeakParallel[name] = uint32(m.peak)
		}
	}
	b.emit(Record{Done: &s})
	b.dropTemps()
}

// dropTemps deletes the checkpoints that were made for this batch and that no
// fork came of.
func (b *Batch) dropTemps() {
	used := make([]bool, len(b.sources))
	for i := range b.groups {
		g := &b.groups[i]
		for _, f := range b.forks[g.first : g.first+g.count] {
			used[g.source] = used[g.source] || f.state == ready
		}
	}
	for i := range b.sources {
		s := &b.sources[i]
		if !s.Temp || used[i] {
			continue
		}
		var at []id.Machine
		for _, name := range b.machineNames() {
			if slices.Contains(b.machines[name].copied, s.Digest) {
				at = append(at, name)
			}
		}
		b.do(DeleteTempCheckpoint{ID: b.newID(), Digest: s.Digest, Machines: at})
	}
}

func (b *Batch) elapsedMS() uint64 {
	return uint64((b.now - b.start) / int64(time.Millisecond))
}

func orUnknown(text string) string {
	if text == "" {
		return "no reason given"
	}
	return text
}
