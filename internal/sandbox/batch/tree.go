package batch

import (
	"slices"
)

// kind is a run of sites that can restore the same checkpoints, with a tree
// over them: node 1 is the root, node n has the children 2n and 2n+1, the
// leaves are the sites in order.
type kind struct {
	first, count int
	leaves       int // power of two
	nodes        []bound
}

// bound is what no site below a node can do better than.
type bound struct {
	cpuLoad, memoryLoad float64 // at least
	perCPU, perMemory   float64 // at least
	slots               int     // at most
	spare               uint64  // at most
}

// query is one search and the best found so far.
type query struct {
	demand
	sites   []site
	best    float64 // only below this; ties go to the first
	room    int
	at      int   // -1: none yet
	holders []int // only these, when there are any
}

func (k *kind) build(sites []site) {
	k.leaves = 1
	for k.leaves < k.count {
		k.leaves *= 2
	}
	k.nodes = make([]bound, 2*k.leaves)
	for i := range k.leaves {
		k.nodes[k.leaves+i] = bound{slots: -1}
		if i < k.count {
			k.nodes[k.leaves+i] = sites[k.first+i].bound()
		}
	}
	for n := k.leaves - 1; n > 0; n-- {
		k.nodes[n] = k.nodes[2*n].join(k.nodes[2*n+1])
	}
}

func (k *kind) update(sites []site, at int) {
	n := k.leaves + at - k.first
	k.nodes[n] = sites[at].bound()
	for n /= 2; n > 0; n /= 2 {
		k.nodes[n] = k.nodes[2*n].join(k.nodes[2*n+1])
	}
}

func (s *site) bound() bound {
	return bound{s.cpuLoad, s.memoryLoad, s.perCPU, s.perMemory, max(s.slots, 0), s.spare()}
}

// join bounds two neighbours; one with slots -1 holds no site.
func (a bound) join(b bound) bound {
	switch {
	case a.slots < 0:
		return b
	case b.slots < 0:
		return a
	}
	return bound{
		min(a.cpuLoad, b.cpuLoad), min(a.memoryLoad, b.memoryLoad), min(a.perCPU, b.perCPU), min(a.perMemory, b.perMemory),
		max(a.slots, b.slots), max(a.spare, b.spare),
	}
}

// least is the least load the demand can lead to below a node; ok is false
// when it fits nowhere there.
func (a *bound) least(q *query) (load float64, ok bool) {
	memory := uint64(q.count) * q.memory
	if a.slots < q.count || a.spare < memory {
		return 0, false
	}
	return max(a.cpuLoad+float64(uint64(q.count)*q.cpus)*a.perCPU, a.memoryLoad+float64(memory)*a.perMemory), true
}

// mostRoom is how many forks of the demand fit a site below a node at most.
func (a *bound) mostRoom(q *query) int {
	return int(min(uint64(max(a.slots, 0)), a.spare/max(q.memory, 1)))
}

func (k *kind) search(q *query) { k.searchNode(q, 1, 0, k.leaves) }

// searchNode looks for the least load below a node that covers the leaves
// lo…hi-1, the more promising child first.
func (k *kind) searchNode(q *query, n, lo, hi int) {
	load, ok := k.nodes[n].least(q)
	if !ok || load > q.best || load == q.best && q.at >= 0 && k.first+lo > q.at {
		return
	}
	if hi-lo == 1 {
		q.consider(k.first + lo)
		return
	}
	mid := (lo + hi) / 2
	left, _ := k.nodes[2*n].least(q)
	right, ok := k.nodes[2*n+1].least(q)
	if ok && right < left {
		k.searchNode(q, 2*n+1, mid, hi)
		k.searchNode(q, 2*n, lo, mid)
		return
	}
	k.searchNode(q, 2*n, lo, mid)
	k.searchNode(q, 2*n+1, mid, hi)
}

// consider takes a site when it is better than what was found.
func (q *query) consider(at int) {
	s := &q.sites[at]
	if !s.fits(q.demand) || slices.Contains(q.tried, s.machine.Name) || !q.wants(at) {
		return
	}
	if load := s.after(q.demand); load < q.best || load == q.best && (q.at < 0 || at < q.at) {
		q.best, q.at = load, at
	}
}

func (q *query) wants(at int) bool {
	if len(q.holders) == 0 {
		return true
	}
	_, ok := slices.BinarySearch(q.holders, at)
	return ok
}

func (k *kind) searchRoom(q *query) { k.searchRoomNode(q, 1, 0, k.leaves) }

func (k *kind) searchRoomNode(q *query, n, lo, hi int) {
	room := k.nodes[n].mostRoom(q)
	if room < q.room || room == 0 || room == q.room && k.first+lo > q.at {
		return
	}
	if hi-lo == 1 {
		q.considerRoom(k.first + lo)
		return
	}
	mid := (lo + hi) / 2
	if k.nodes[2*n+1].mostRoom(q) > k.nodes[2*n].mostRoom(q) {
		k.searchRoomNode(q, 2*n+1, mid, hi)
		k.searchRoomNode(q, 2*n, lo, mid)
		return
	}
	k.searchRoomNode(q, 2*n, lo, mid)
	k.searchRoomNode(q, 2*n+1, mid, hi)
}

func (q *query) considerRoom(at int) {
	s := &q.sites[at]
	b := s.bound()
	room := b.mostRoom(q)
	if room == 0 || slices.Contains(q.tried, s.machine.Name) {
		return
	}
	if room > q.room || room == q.room && at < q.at {
		q.room, q.at = room, at
	}
}
