package batch

import (
	"fmt"
	"slices"

	"brood/internal/base/id"
)

// end gives a fork its end as failed.
func (b *Batch) end(index int, host id.Machine, attempt int, why failure, forkMS uint64) {
	f := &b.forks[index]
	f.state, f.token, f.part = ended, 0, nil
	b.failed++
	b.emitItem(Item{Index: uint32(index), Host: host, Error: why.text, ErrorCode: why.code, Attempt: uint32(attempt), ForkMS: forkMS})
}

// elsewhere places forks that left part p again, or ends them when that is
// one time too many or there is no other machine. A machine that failed or was
// full before it granted anything has not been an attempt: finding one that
// takes them is part of placing. Since it is not tried again, that ends.
func (b *Batch) elsewhere(p *part, forks []int, why failure, granted bool) {
	attempt, last := p.attempt, max(p.attempt-1, 1)
	if granted {
		attempt, last = p.attempt+1, p.attempt
	}
	switch {
	case len(forks) == 0:
	case !b.where.Auto || b.cancelled || attempt > b.attempts():
		if last > 1 {
			why.text = fmt.Sprintf("%s; placed %d times", why.text, last)
		}
		for _, i := range forks {
			b.end(i, p.machine, last, why, 0)
		}
	default:
		for _, i := range forks {
			b.forks[i].state, b.forks[i].token = open, 0
		}
		tried := slices.Clone(p.tried)
		if !slices.Contains(tried, p.machine) {
			tried = append(tried, p.machine)
		}
		b.pend(&part{group: p.group, attempt: attempt, open: forks, tried: tried, cause: why})
	}
}

// unplaceable ends the open forks of a part that no machine takes.
func (b *Batch) unplaceable(p *part, why failure) {
	if p.cause.code != "" {
		why = failure{p.cause.code, p.cause.text + "; no other machine takes it: " + why.text}
	}
	host := b.Target()
	if len(p.tried) > 0 {
		host = p.tried[len(p.tried)-1]
	}
	forks := p.open
	p.open = nil
	delete(b.parts, p.id)
	for _, i := range forks {
		b.end(i, host, p.lastAttempt(), why, 0)
	}
}

// failMachine takes everything off a machine that failed. What is ready there
// was handed out and stays in the books.
func (b *Batch) failMachine(m *machine, text string) {
	why := failure{CodeHostFailed, string(m.name) + " failed: " + text}
	parts := m.parts
	m.parts = nil
	for _, p := range parts {
		for _, i := range p.active {
			b.remove(b.forks[i].token, i, m.name, "its machine failed")
		}
		forks := merged(p.open, p.active)
		if p.state == reserving {
			delete(b.grants, p.grant)
			b.abandoned[p.grant] = m.name
			b.disown(p, len(forks))
		} else {
			b.release(p, len(forks))
		}
		m.starting -= len(p.active)
		p.open, p.active = nil, nil
		b.reap(p)
		b.elsewhere(p, forks, why, p.announced)
	}
	m.synced = nil // it may come back as another one
	b.stopUnwanted(m)
}

// onCancel ends what has not started; what is starting comes to its end, what
// is ready stays (F50).
func (b *Batch) onCancel() {
	if b.done || b.cancelled {
		return
	}
	b.cancelled = true
	b.pending = nil
	var parts []*part
	for _, p := range b.parts {
		if len(p.open) > 0 {
			parts = append(parts, p)
		}
	}
	slices.SortFunc(parts, func(p, q *part) int { return p.open[0] - q.open[0] })
	for _, p := range parts {
		forks := p.open
		switch p.state {
		case unplaced:
		case reserving:
			delete(b.grants, p.grant)
			b.abandoned[p.grant] = p.machine
			b.disown(p, len(forks))
		default:
			b.release(p, len(forks))
		}
		p.open = nil
		for _, i := range forks {
			b.end(i, p.machine, p.lastAttempt(), failure{CodeForkFailed, "cancelled before it started"}, 0)
		}
		b.reap(p)
	}
}
