package batch

import (
	"fmt"
	"slices"

	"brood/internal/base/id"
)

// memoryFloor is the share of a machine's memory that stays really free
// (F44): one part in twenty, 5 %.
const memoryFloor = 20

// fill starts forks on a machine up to the limit.
func (b *Batch) fill(m *machine) {
	for m.starting < b.atOnce(m) {
		p := m.next()
		if p == nil {
			return
		}
		if b.tight(m, p) {
			if m.starting == 0 && !m.stale {
				b.outOfMemory(m)
			}
			return // the next measurement or ended start tries again
		}
		b.startNext(m, p)
	}
}

// atOnce is how many forks of this batch start on a machine at once: what more
// were asked of it would only wait there, and be counted as starting.
func (b *Batch) atOnce(m *machine) int {
	if m.limit > 0 {
		return min(m.limit, b.maxParallel())
	}
	return b.maxParallel()
}

// next returns the oldest part with a fork that may start now.
func (m *machine) next() *part {
	for _, p := range m.parts {
		if p.state == startable && len(p.open) > 0 {
			return p
		}
	}
	return nil
}

func (b *Batch) startNext(m *machine, p *part) {
	index := p.open[0]
	p.open = p.open[1:]
	at, _ := slices.BinarySearch(p.active, index)
	p.active = slices.Insert(p.active, at, index)
	f := &b.forks[index]
	f.state, f.token = starting, b.newID()
	m.starting++
	m.peak = max(m.peak, m.starting)
	m.owed += b.sources[b.groups[p.group].source].StartMiB
	m.stale = true
	b.do(b.startEffect(p, index))
}

func (b *Batch) startEffect(p *part, index int) StartFork {
	source := b.groups[p.group].source
	cpus, memory := b.counted(source)
	return StartFork{
		ID: b.forks[index].token, Grant: p.grant, Machine: p.machine, Index: index, Group: p.group, Attempt: p.attempt,
		Name: b.nameOf(index), Source: b.sources[source].Ref, Digest: b.sources[source].Digest, CPUs: cpus, MemoryMiB: memory,
	}
}

// measure notes a machine's really free memory. Forks that are starting may
// not have taken theirs yet.
func (b *Batch) measure(m *machine, total, free uint64) {
	m.total, m.free = total, free
	m.owed = 0
	for _, p := range m.parts {
		m.owed += uint64(len(p.active)) * b.sources[b.groups[p.group].source].StartMiB
	}
	m.stale = false
}

// tight reports whether one more fork of p would leave less than the floor
// really free. For auto, counted memory decided already.
func (b *Batch) tight(m *machine, p *part) bool {
	if b.where.Auto || m.total == 0 || m.free == 0 {
		return false
	}
	return m.free < m.total/memoryFloor+m.owed+b.sources[b.groups[p.group].source].StartMiB
}

// starved reports that nothing starts for want of a fresh measurement.
func (b *Batch) starved() bool {
	if b.where.Auto {
		return false
	}
	m := b.machines[b.target]
	return m != nil && m.starting == 0 && m.next() != nil
}

func (b *Batch) outOfMemory(m *machine) {
	why := failure{CodeNoCapacity, fmt.Sprintf("%s has %d MiB of %d MiB memory free and keeps %d %% for itself: remove sandboxes, or fork fewer",
		m.name, m.free, m.total, 100/memoryFloor)}
	for p := m.next(); p != nil; p = m.next() {
		forks := p.open
		b.release(p, len(forks))
		p.open = nil
		b.reap(p)
		b.elsewhere(p, forks, why, true)
	}
}

// current returns the fork that a message about a start is for; nil when the
// message is stale.
func (b *Batch) current(token EffectID, index int) *fork {
	if index < 0 || index >= len(b.forks) || token == 0 || b.forks[index].token != token {
		return nil
	}
	return &b.forks[index]
}

func (b *Batch) onStarted(e ForkStarted) {
	if f := b.current(e.Token, e.Index); f == nil || f.state != starting && f.state != ready {
		b.remove(e.Token, e.Index, e.Machine, "stale start")
	}
}

func (b *Batch) onReady(e ForkReady) {
	f := b.current(e.Token, e.Index)
	switch {
	case f != nil && f.state == ready:
		return // the same answer again
	case f == nil || f.state != starting:
		b.remove(e.Token, e.Index, e.Machine, "stale answer")
		return
	}
	p := f.part
	m := b.machines[p.machine]
	b.stopStarting(m, p, e.Index)
	b.becomeReady(p, e.Index, e.ForkMS, e.Space)
	b.reap(p)
	b.fill(m)
}

func (b *Batch) becomeReady(p *part, index int, forkMS uint64, space string) {
	f := &b.forks[index]
	f.state, f.part = ready, nil
	b.ok++
	_, memory := b.counted(b.groups[p.group].source)
	m := b.machines[p.machine]
	m.ready++
	m.readyMemory += memory
	if space == "" && p.machine == id.Local {
		space = "local:" + string(b.nameOf(index))
	}
	b.emitItem(Item{Index: uint32(index), Host: p.machine, Space: space, Attempt: uint32(p.attempt), ForkMS: forkMS})
}

func (b *Batch) onFailed(e ForkFailed) {
	f := b.current(e.Token, e.Index)
	if f == nil || f.state != starting {
		if e.Cause == Host && (f == nil || f.state != ready) {
			b.remove(e.Token, e.Index, e.Machine, "stale answer") // who knows what is there
		}
		return
	}
	p := f.part
	m := b.machines[p.machine]
	b.stopStarting(m, p, e.Index)
	f.state = open
	if e.Cause == Host {
		b.remove(e.Token, e.Index, p.machine, "its machine failed")
	}
	b.release(p, 1)
	text := orUnknown(e.Error)
	switch e.Cause {
	case Host:
		b.reap(p)
		b.elsewhere(p, []int{e.Index}, failure{CodeHostFailed, string(p.machine) + ": " + text}, true)
	case Capacity:
		b.reap(p)
		b.elsewhere(p, []int{e.Index}, failure{CodeNoCapacity, string(p.machine) + " is full: " + text}, true)
	default:
		b.end(e.Index, p.machine, p.attempt, failure{CodeForkFailed, text}, e.ForkMS)
		b.reap(p)
	}
	b.fill(m)
}

func (b *Batch) stopStarting(m *machine, p *part, index int) {
	if at, ok := slices.BinarySearch(p.active, index); ok {
		p.active = slices.Delete(p.active, at, at+1)
	}
	m.starting--
	m.stale = true
}

// remove has a start's sandbox removed. It is remembered until that is
// confirmed, so that a restart asks for it again.
func (b *Batch) remove(token EffectID, index int, at id.Machine, why string) {
	if index < 0 || index >= len(b.forks) || token == 0 || at == "" {
		return
	}
	b.removals[token] = removal{machine: at, index: index, why: why}
	b.do(RemoveFork{ID: b.newID(), Token: token, Machine: at, Index: index, Name: b.nameOf(index), Why: why})
}

func (b *Batch) emitItem(it Item) {
	g := b.groupOf(int(it.Index))
	it.Group = uint32(g)
	it.Source = b.sources[b.groups[g].source].Ref
	it.Name = b.nameOf(int(it.Index))
	it.ElapsedMS = b.elapsedMS()
	b.emit(Record{Item: &it})
}
