package exec

import (
	"sync"

	"brood/internal/base/id"
	"brood/internal/sandbox/batch"
	"brood/internal/sandbox/host"
	"brood/internal/sandbox/roster"
)

// ledger keeps the places that batches have reserved on this machine and not
// filled yet, so that two batches together never promise more than there is.
type ledger struct {
	host *host.Host

	mu     sync.Mutex // guards grants
	grants map[grant]int
}

// machine is this machine as a batch sees it: without what the batch itself
// has here.
func (l *ledger) machine(b id.Batch) roster.Machine {
	m := l.host.Capacity(b)
	l.mu.Lock()
	defer l.mu.Unlock()
	for g, n := range l.grants {
		if g.batch != b {
			m.SandboxesUsed += n
		}
	}
	return m
}

// reserve keeps as many places as fit. On this machine its own limit of
// sandboxes decides; memory that is really free decides when forks start.
func (l *ledger) reserve(b id.Batch, e batch.Reserve) batch.Event {
	all := l.host.Capacity("")
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.grants {
		all.SandboxesUsed += n
	}
	count := all.Slots(e.Count)
	if count <= 0 {
		return batch.ReserveRefused{Grant: e.ID, Machine: e.Machine, Why: "its limit of sandboxes is reached"}
	}
	l.grants[grant{b, e.ID}] = count
	return batch.Reserved{Grant: e.ID, Machine: e.Machine, Count: count}
}

// give takes places back.
func (l *ledger) give(b id.Batch, of batch.EffectID, count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := grant{b, of}
	if l.grants[g] -= count; l.grants[g] <= 0 {
		delete(l.grants, g)
	}
}
