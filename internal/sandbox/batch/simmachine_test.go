package batch_test

import (
	"slices"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/id"
	"brood/internal/sandbox/batch"
	"brood/internal/sandbox/roster"
)

// simMachine is a machine that keeps the contract: it reserves before it
// answers, knows every effect by its id, and may fall silent or die.
type simMachine struct {
	w                *world
	name             id.Machine
	online, provides bool
	cores            int
	memory           uint64
	limit            int
	atOnce           int // starting at once; 0: no limit
	drivers          []string
	holds            map[digest.Digest]bool

	othersMemory uint64 // promised to others
	othersCount  int

	epoch       int // counts its lives
	silentUntil time.Duration
	grants      map[batch.EffectID]*simGrant
	copies      map[batch.EffectID]string // running, done, failed, stopped
	sandboxes   map[batch.EffectID]*simSandbox
	failed      bool // it failed at some time
}

type simGrant struct {
	granted, left int
	memory        uint64
}

type simSandbox struct {
	token   batch.EffectID
	index   int
	name    id.Name
	state   string // starting, ready, failed, removed
	outcome batch.Event
}

// clear forgets everything that does not survive the machine.
func (m *simMachine) clear() {
	m.grants = map[batch.EffectID]*simGrant{}
	m.copies = map[batch.EffectID]string{}
	m.sandboxes = map[batch.EffectID]*simSandbox{}
}

func (m *simMachine) tell(after time.Duration, ev batch.Event) {
	m.w.post(letter{at: after, ev: ev, from: m})
}

func (m *simMachine) shown() roster.Machine {
	r := roster.Machine{
		Name: m.name, Online: m.online, Provides: m.provides, Cores: m.cores, MemoryMiB: m.memory, FreeMemoryMiB: m.free(),
		SandboxLimit: m.limit, StartLimit: m.atOnce, SandboxesUsed: m.othersCount, ReservedCPUs: uint64(m.othersCount), ReservedMemoryMiB: m.othersMemory, Drivers: m.drivers,
	}
	for _, s := range m.w.sources {
		if m.holds[s.Digest] {
			r.Holds = append(r.Holds, s.Digest)
		}
	}
	return r
}

// free is the really free memory: sandboxes take less than they are counted.
func (m *simMachine) free() uint64 {
	used := m.othersMemory / 2
	for _, s := range m.sandboxes {
		if s.state == "starting" || s.state == "ready" {
			used += 200
		}
	}
	return m.memory - min(used, m.memory-1)
}

func (m *simMachine) mine() (count int, memory uint64) {
	for _, g := range m.grants {
		count += g.left
		memory += uint64(g.left) * g.memory
	}
	return count, memory
}

func (m *simMachine) reserve(e batch.Reserve) {
	w := m.w
	after := w.upTo(30 * time.Millisecond)
	g := m.grants[e.ID]
	if g == nil {
		count, memory := m.mine()
		fits := e.Count
		if m.limit > 0 {
			fits = min(fits, max(0, m.limit-m.othersCount-count))
		}
		if e.Counted {
			fits = min(fits, int((m.memory-min(m.memory, m.othersMemory+memory))/e.MemoryMiB))
		}
		if w.chance(5) {
			fits = w.r.IntN(fits + 1)
		}
		g = &simGrant{granted: fits, left: fits, memory: e.MemoryMiB}
		m.grants[e.ID] = g
	}
	if g.granted == 0 {
		m.tell(after, batch.ReserveRefused{Grant: e.ID, Machine: m.name, Why: "full"})
		return
	}
	m.tell(after, batch.Reserved{Grant: e.ID, Machine: m.name, Count: g.granted})
}

func (m *simMachine) release(e batch.Release) {
	if g := m.grants[e.Grant]; g != nil {
		g.left -= e.Count
		if g.left < 0 {
			m.w.check.fail("%s: grant %d has %d places after a release of %d", m.name, e.Grant, g.left, e.Count)
		}
	}
}

func (m *simMachine) copy(e batch.EnsureCheckpoint) {
	w := m.w
	switch m.copies[e.ID] {
	case "done":
		m.tell(0, batch.Synced{SyncProgress: batch.SyncProgress{Copy: e.ID, Machine: m.name}})
		return
	case "failed":
		m.tell(0, batch.SyncFailed{Copy: e.ID, Machine: m.name, Error: "no source"})
		return
	case "stopped", "running":
		return
	}
	m.copies[e.ID] = "running"
	m.copyOn(e, 0, uint64(1+w.r.IntN(20)), w.chance(15))
}

// copyOn moves one piece after the other.
func (m *simMachine) copyOn(e batch.EnsureCheckpoint, done, total uint64, fails bool) {
	m.w.post(letter{at: m.w.upTo(60 * time.Millisecond), from: m, do: func() {
		p := batch.SyncProgress{Copy: e.ID, Machine: m.name, From: "m9", BytesDone: done, BytesTotal: total}
		switch {
		case m.copies[e.ID] != "running":
		case done < total:
			m.tell(m.w.upTo(40*time.Millisecond), p)
			m.copyOn(e, done+1, total, fails)
		case fails:
			m.copies[e.ID] = "failed"
			m.tell(0, batch.SyncFailed{Copy: e.ID, Machine: m.name, Error: "no source"})
		default:
			m.copies[e.ID] = "done"
			m.holds[e.Digest] = true
			m.tell(0, batch.Synced{SyncProgress: p})
		}
	}})
}

func (m *simMachine) start(e batch.StartFork) {
	w := m.w
	if s := m.sandboxes[e.ID]; s != nil {
		if s.outcome != nil {
			m.tell(0, s.outcome)
		}
		return
	}
	if m.grants[e.Grant] == nil {
		// It lives again and knows nothing of this batch.
		w.post(letter{ev: batch.MachineFailed{Machine: m.name, Error: "it was restarted"}})
		return
	}
	if !m.holds[e.Digest] {
		w.check.fail("%s is to fork %s without its checkpoint", m.name, e.Name)
	}
	s := &simSandbox{token: e.ID, index: e.Index, name: e.Name, state: "starting"}
	m.sandboxes[e.ID] = s
	if w.chance(60) { // nothing depends on this message
		m.tell(w.upTo(20*time.Millisecond), batch.ForkStarted{Token: e.ID, Index: e.Index, Machine: m.name})
	}
	takes := w.upTo(300 * time.Millisecond)
	if w.chance(3) {
		takes = w.upTo(30 * time.Second)
	}
	w.post(letter{at: takes, from: m, do: func() { m.finish(s, e) }})
}

func (m *simMachine) finish(s *simSandbox, e batch.StartFork) {
	if s.state != "starting" {
		return
	}
	w := m.w
	s.state = "failed"
	f := batch.ForkFailed{Token: e.ID, Index: e.Index, Machine: m.name, Error: "boom", ForkMS: 3}
	switch n := w.r.IntN(100); {
	case n < 6:
		f.Cause = batch.Own
		s.outcome = f
	case n < 10:
		f.Cause = batch.Host
		s.outcome = f
		if w.chance(50) {
			s.state = "ready" // nobody knows: it may well live
		}
	case n < 14:
		f.Cause = batch.Capacity
		s.outcome = f
	default:
		s.state = "ready"
		s.outcome = batch.ForkReady{Token: e.ID, Index: e.Index, Machine: m.name, ForkMS: 5, Space: "direct:x"}
	}
	m.tell(w.upTo(50*time.Millisecond), s.outcome)
}

func (m *simMachine) remove(e batch.RemoveFork) {
	if s := m.sandboxes[e.Token]; s != nil {
		if s.state == "ready" {
			m.w.check.met["stale removed"]++
		}
		s.state = "removed"
		s.outcome = batch.ForkFailed{Token: e.Token, Index: e.Index, Machine: m.name, Error: "removed"}
	}
	m.tell(0, batch.ForkRemoved{Token: e.Token})
}

// crash takes the machine and all that ran on it, for a while or for good.
func (m *simMachine) crash() {
	if m.name == id.Local || !m.online {
		return
	}
	m.w.check.met["crash"]++
	m.w.say("%s crashes", m.name)
	m.epoch++
	m.online, m.failed = false, true
	m.clear()
	m.w.post(letter{at: m.w.upTo(100 * time.Millisecond), ev: batch.MachineFailed{Machine: m.name, Error: "connection closed"}})
	if m.w.chance(60) {
		m.w.post(letter{at: m.w.upTo(30 * time.Second), do: func() { m.online = true }})
	}
}

// fallSilent cuts the line: the machine works on, and all it says arrives when
// the line is back.
func (m *simMachine) fallSilent() {
	if m.name == id.Local || !m.online || m.silentUntil > m.w.now {
		return
	}
	m.w.check.met["silent"]++
	m.silentUntil = m.w.now + m.w.upTo(40*time.Second)
	m.failed = true
	m.w.say("%s is silent until %s", m.name, m.silentUntil)
}

// adopt is what a new daemon finds on its machine: half-made sandboxes are
// gone, reservations and copies under way too, some sandboxes ended since.
func (m *simMachine) adopt() []*simSandbox {
	m.epoch++
	m.grants = map[batch.EffectID]*simGrant{}
	for c, state := range m.copies {
		if state == "running" {
			delete(m.copies, c)
		}
	}
	var alive []*simSandbox
	for _, s := range m.sandboxes {
		switch s.state {
		case "starting":
			s.state = "removed"
		case "ready":
			alive = append(alive, s)
		}
	}
	slices.SortFunc(alive, func(a, b *simSandbox) int { return int(a.token) - int(b.token) })
	return alive
}
