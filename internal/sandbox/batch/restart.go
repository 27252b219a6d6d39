package batch

import (
	"cmp"
	"fmt"
	"slices"

	"brood/internal/base/id"
)

// onRestarted takes up the work in a new process (F50): forks that live on
// this machine are ready; starts that were interrupted begin anew; and
// everything whose answer is still awaited is asked for again, since the old
// process may have died before it did it. Asking twice is harmless: all
// effects are known by their ids.
func (b *Batch) onRestarted(e Restarted) {
	b.redoRemovals()
	alive := map[EffectID]Alive{}
	for _, a := range e.Alive {
		// Of a shell that lost the end of its journal: an id is never used twice.
		b.nextID = max(b.nextID, min(a.Token, maxID-1)+1)
	}
	for _, a := range e.Alive {
		alive[a.Token] = a
		f := b.current(a.Token, a.Index)
		if _, known := b.removals[a.Token]; !known && (f == nil || f.state != starting && f.state != ready) {
			b.remove(a.Token, a.Index, id.Local, "left over from before the restart")
		}
	}
	if b.done {
		b.dropTemps()
		return
	}
	b.asked = 0
	for _, name := range b.machineNames() {
		m := b.machines[name]
		m.heard = b.now
		m.stale = true
		for _, t := range m.copies {
			b.do(b.ensureEffect(t))
		}
		for _, p := range slices.Clone(m.parts) {
			if name == id.Local {
				b.rejoin(m, p, alive)
			} else {
				b.redo(p)
			}
		}
	}
	for grant, at := range b.abandoned {
		if at == id.Local {
			delete(b.abandoned, grant) // the reservations of this machine ended with its daemon
		}
	}
}

func (b *Batch) redoRemovals() {
	tokens := make([]EffectID, 0, len(b.removals))
	for t := range b.removals {
		tokens = append(tokens, t)
	}
	slices.SortFunc(tokens, func(s, t EffectID) int { return cmp.Compare(s, t) })
	for _, t := range tokens {
		r := b.removals[t]
		b.remove(t, r.index, r.machine, r.why)
	}
}

// redo asks another machine again for what it was asked for.
func (b *Batch) redo(p *part) {
	if p.state == reserving {
		b.do(b.reserveEffect(p))
	}
	for _, i := range p.active {
		b.do(b.startEffect(p, i))
	}
}

// rejoin takes up a part on this machine: what lives is ready, the rest asks
// for its places again, which ended with the old process.
func (b *Batch) rejoin(m *machine, p *part, alive map[EffectID]Alive) {
	for _, i := range slices.Clone(p.active) {
		f := &b.forks[i]
		if a, ok := alive[f.token]; ok && a.Index == i {
			b.stopStarting(m, p, i)
			b.becomeReady(p, i, a.ForkMS, "")
			continue
		}
		b.interrupted(m, p, i)
	}
	delete(b.grants, p.grant)
	b.disown(p, len(p.open))
	if len(p.open) > 0 {
		b.reserve(p)
	}
	b.reap(p)
}

// interrupted puts a start that a restart cut off back in its row. A fork that
// was starting at each of several restarts may be their cause: it ends.
func (b *Batch) interrupted(m *machine, p *part, index int) {
	f := &b.forks[index]
	b.stopStarting(m, p, index)
	b.remove(f.token, index, m.name, "its start was interrupted by a restart")
	b.lost[index]++
	why := ""
	switch {
	case b.cancelled:
		why = "its start was interrupted by a restart after the batch was cancelled"
	case b.lost[index] >= maxLost:
		why = fmt.Sprintf("the daemon ended %d times while this fork was starting", b.lost[index])
	}
	if why != "" {
		b.disown(p, 1)
		b.end(index, m.name, p.lastAttempt(), failure{CodeForkFailed, why}, 0)
		return
	}
	f.state, f.token = open, 0
	p.open = merged(p.open, []int{index})
}
