package batch

import (
	"cmp"
	"fmt"
	"slices"

	"brood/internal/base/digest"
	"brood/internal/base/id"
)

// partState is how far a part is on its machine.
type partState byte

const (
	unplaced  partState = 'u'
	reserving partState = 'r'
	copying   partState = 'c'
	startable partState = 'g'
)

// part is the forks of one group that are placed together, once. It lives
// until its last fork is ready, ended, or part of another placement.
type part struct {
	id      EffectID
	group   int
	attempt int // of the placement it has or waits for; 1 for the first
	state   partState
	machine id.Machine
	grant   EffectID
	open    []int // not started, by index
	active  []int // starting, by index

	tried     []id.Machine // where these forks were, or were refused
	cause     failure      // why they are placed again
	reason    string       // why they went to machine
	needsSync bool
	announced bool // its placement is recorded
}

// failure is why a fork did not become ready.
type failure struct {
	code ErrorCode
	text string
}

// machine is what a batch has on one machine.
type machine struct {
	name     id.Machine
	parts    []*part // by id
	copies   []*transfer
	copied   []digest.Digest // copies this batch ever began there
	synced   []digest.Digest // those that are there now
	starting int
	limit    int // of forks starting at once, of all batches; 0: none
	ready    int
	peak     int
	heard    int64

	// Places this batch has or has asked for there, ready forks included.
	own         int
	ownMemory   uint64
	readyMemory uint64 // of ready forks alone

	total, free uint64 // MiB; free 0: not measured
	owed        uint64 // MiB that forks started since the measurement may take
	stale       bool   // forks started or ended since the measurement
}

func (b *Batch) machine(name id.Machine) *machine {
	m := b.machines[name]
	if m == nil {
		m = &machine{name: name}
		b.machines[name] = m
	}
	return m
}

// pend puts a part in the row of those that wait for a machine; forks that
// come from the same failure stay together.
func (b *Batch) pend(p *part) {
	p.state = unplaced
	if q := b.alike(p); q != nil {
		q.open = merged(q.open, p.open)
		for _, i := range p.open {
			b.forks[i].part = q
		}
		return
	}
	p.id = b.newID()
	b.parts[p.id] = p
	for _, i := range p.open {
		b.forks[i].part = p
	}
	b.pending = append(b.pending, p)
}

// alike returns a waiting part that p can join.
func (b *Batch) alike(p *part) *part {
	if len(p.tried) == 0 {
		return nil // a whole group, that is
	}
	for _, q := range b.pending {
		if q.group == p.group && q.attempt == p.attempt && slices.Equal(q.tried, p.tried) {
			return q
		}
	}
	return nil
}

// assign sends count forks of an unplaced part to a machine; the rest stays in
// the part. It reports whether forks are left.
func (b *Batch) assign(p *part, to id.Machine, count int, reason string, holds bool) (rest bool) {
	q := p
	if count < len(p.open) {
		q = &part{id: b.newID(), group: p.group, attempt: p.attempt, tried: p.tried, cause: p.cause, open: slices.Clone(p.open[:count])}
		p.open = p.open[count:]
		b.parts[q.id] = q
		for _, i := range q.open {
			b.forks[i].part = q
		}
	}
	q.machine, q.reason, q.needsSync = to, reason, !holds
	b.reserve(q)
	return q != p
}

// reserve asks the part's machine for its places.
func (b *Batch) reserve(p *part) {
	m := b.machine(p.machine)
	if len(m.parts) == 0 {
		m.heard = b.now
	}
	at, found := slices.BinarySearchFunc(m.parts, p.id, byID)
	if !found {
		m.parts = slices.Insert(m.parts, at, p)
	}
	p.state, p.grant = reserving, b.newID()
	b.grants[p.grant] = p
	_, memory := b.counted(b.groups[p.group].source)
	m.own += len(p.open)
	m.ownMemory += uint64(len(p.open)) * memory
	b.do(b.reserveEffect(p))
}

func (b *Batch) reserveEffect(p *part) Reserve {
	source := b.groups[p.group].source
	cpus, memory := b.counted(source)
	return Reserve{ID: p.grant, Machine: p.machine, Digest: b.sources[source].Digest, Count: len(p.open), CPUs: cpus, MemoryMiB: memory, Counted: b.where.Auto}
}

// disown takes count places of a part off the machine's account.
func (b *Batch) disown(p *part, count int) {
	m := b.machines[p.machine]
	_, memory := b.counted(b.groups[p.group].source)
	m.own -= count
	m.ownMemory -= uint64(count) * memory
}

// release gives count places of a granted part back.
func (b *Batch) release(p *part, count int) {
	if count == 0 {
		return
	}
	b.disown(p, count)
	b.do(Release{ID: b.newID(), Grant: p.grant, Machine: p.machine, Count: count})
}

func (b *Batch) onReserved(e Reserved) {
	p := b.grants[e.Grant]
	if p == nil {
		if m, ok := b.abandoned[e.Grant]; ok {
			delete(b.abandoned, e.Grant)
			b.do(Release{ID: b.newID(), Grant: e.Grant, Machine: m, Count: max(e.Count, 0)})
		}
		return
	}
	if e.Count <= 0 {
		b.refused(p, p.open, "", p.announced)
		return
	}
	delete(b.grants, e.Grant)
	asked := p.open
	p.open = asked[:min(e.Count, len(asked))]
	if e.Count > len(asked) {
		b.do(Release{ID: b.newID(), Grant: p.grant, Machine: p.machine, Count: e.Count - len(asked)})
	}
	before := p.announced
	b.announce(p)
	if rest := asked[len(p.open):]; len(rest) > 0 {
		b.refused(p, slices.Clone(rest), fmt.Sprintf("it took %d of %d", e.Count, len(asked)), before)
	}
	m := b.machines[p.machine]
	if p.needsSync && !slices.Contains(m.synced, b.digestOf(p)) {
		p.state = copying
		b.ensure(m, b.groups[p.group].source)
		return
	}
	p.state = startable
	b.fill(m)
}

func (b *Batch) announce(p *part) {
	if p.announced {
		return
	}
	p.announced = true
	b.emit(Record{Placement: &Placement{
		Group: uint32(p.group), Source: b.sources[b.groups[p.group].source].Ref, Host: p.machine, Count: uint32(len(p.open)),
		Attempt: uint32(p.attempt), NeedsSync: p.needsSync, Reason: p.reason,
	}})
}

func (b *Batch) onRefused(e ReserveRefused) {
	delete(b.abandoned, e.Grant)
	if p := b.grants[e.Grant]; p != nil {
		b.refused(p, p.open, e.Why, p.announced)
	}
}

// refused places forks that found a full machine on another one. granted says
// that they had their place there before, which a restart took.
func (b *Batch) refused(p *part, forks []int, why string, granted bool) {
	text := string(p.machine) + " is full"
	if why != "" {
		text += " (" + why + ")"
	}
	b.disown(p, len(forks))
	if p.state == reserving && b.grants[p.grant] == p {
		delete(b.grants, p.grant)
		p.open = nil
		b.reap(p)
	}
	b.elsewhere(p, forks, failure{CodeNoCapacity, text}, granted)
}

// reap forgets a part that has no fork left, and copies nobody waits for.
func (b *Batch) reap(p *part) {
	if len(p.open)+len(p.active) > 0 {
		return
	}
	delete(b.parts, p.id)
	m := b.machines[p.machine]
	if m == nil {
		return
	}
	if at, ok := slices.BinarySearchFunc(m.parts, p.id, byID); ok {
		m.parts = slices.Delete(m.parts, at, at+1)
	}
	b.stopUnwanted(m)
}

func (b *Batch) digestOf(p *part) digest.Digest { return b.sources[b.groups[p.group].source].Digest }

func byID(p *part, want EffectID) int { return cmp.Compare(p.id, want) }

// lastAttempt is the newest attempt whose placement was recorded, 1 when
// there was none yet.
func (p *part) lastAttempt() int {
	if p.announced {
		return p.attempt
	}
	return max(p.attempt-1, 1)
}

// merged joins two sorted lists.
func merged(a, b []int) []int {
	out := append(slices.Clone(a), b...)
	slices.Sort(out)
	return out
}
