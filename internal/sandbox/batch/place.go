package batch

import (
	"fmt"

	"brood/internal/base/id"
	"brood/internal/sandbox/roster"
)

// holderBonus is how much busier than the least loaded machine one may be
// that holds the checkpoint and still wins (F44).
const holderBonus = 0.10

// rounding keeps a difference of exactly holderBonus inside it.
const rounding = 1e-9

// place finds machines for all parts that wait for one.
func (b *Batch) place(list []roster.Machine) {
	pending := b.pending
	b.pending = nil
	if len(pending) == 0 {
		return
	}
	if !b.where.Auto {
		m := find(list, b.target)
		for _, p := range pending {
			b.placeOn(p, m)
		}
		return
	}
	f := newField(b, list, b.usual(pending))
	for _, p := range pending {
		b.placeAnywhere(p, f)
	}
}

// find returns a machine of the list when it is online.
func find(list []roster.Machine, name id.Machine) *roster.Machine {
	for i := range list {
		if list[i].Name == name && list[i].Online {
			return &list[i]
		}
	}
	return nil
}

// placeOn places a part on the one machine the request allows. Its limit of
// sandboxes decides here, its really free memory when forks start.
func (b *Batch) placeOn(p *part, m *roster.Machine) {
	s := &b.sources[b.groups[p.group].source]
	if m == nil {
		b.unplaceable(p, failure{CodeNoHost, fmt.Sprintf("machine %s is not online", b.target)})
		return
	}
	if missing := m.Missing(s.Needs); missing != "" {
		b.unplaceable(p, failure{CodeNoHost, missing})
		return
	}
	want := len(p.open)
	room := max(0, m.Slots(MaxForks)-b.machine(m.Name).own)
	full := failure{CodeNoCapacity, fmt.Sprintf("%s takes no more sandboxes (limit %d): remove some, or raise its limit", m.Name, m.SandboxLimit)}
	if room == 0 {
		b.unplaceable(p, full)
		return
	}
	reason := "chosen by the request"
	if m.Name == id.Local {
		reason = "this machine, as asked"
	}
	if room < want {
		reason += ", takes a part since it has no room for all"
	}
	if b.assign(p, m.Name, min(room, want), reason, b.holds(m, s)) {
		b.unplaceable(p, full)
	}
}

// holds reports whether a machine holds a source's checkpoint, as far as is
// known.
func (b *Batch) holds(m *roster.Machine, s *Source) bool {
	if m.HoldsDigest(s.Digest) {
		return true
	}
	for _, h := range s.Held {
		if h == m.Name {
			return true
		}
	}
	if mine := b.machines[m.Name]; mine != nil {
		for _, d := range mine.synced {
			if d == s.Digest {
				return true
			}
		}
	}
	return false
}

// demand is what a part asks for.
func (b *Batch) demand(p *part) demand {
	source := b.groups[p.group].source
	cpus, memory := b.counted(source)
	return demand{source: source, count: len(p.open), cpus: uint64(cpus), memory: memory, tried: p.tried}
}

// placeAnywhere places a part on the best machine, or in parts on several
// when no machine has room for all of it.
func (b *Batch) placeAnywhere(p *part, f *field) {
	d := b.demand(p)
	if f.candidates(d) == 0 {
		b.unplaceable(p, failure{CodeNoHost, f.nobody(d)})
		return
	}
	for more := true; more; {
		d.count = len(p.open)
		at, reason := f.best(d)
		if at == nil {
			if at, d.count = f.roomiest(d); at == nil {
				b.unplaceable(p, failure{CodeNoCapacity, f.full(d)})
				return
			}
			reason = fmt.Sprintf("takes a part since no machine has room for all (load %s)", percent(at.after(d.weight())))
		}
		switch {
		case p.attempt > 1:
			reason = "placed again: " + p.cause.text + "; " + reason
		case p.cause.text != "":
			reason = p.cause.text + "; " + reason
		}
		holds := f.holder(at, d.source)
		f.take(at, d)
		more = b.assign(p, at.machine.Name, d.count, reason, holds)
	}
}

func percent(load float64) string { return fmt.Sprintf("%.0f %%", load*100) }
