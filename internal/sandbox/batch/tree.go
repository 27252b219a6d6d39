package batch

import (
	"slices"
)

// tree finds the best of some sites. Node 1 is the root, node n has the
// children 2n and 2n+1, the leaves are the members in order.
type tree struct {
	members []int // places in field.sites, ascending
	leaves  int   // power of two
	nodes   []bound
	stale   []int // members that changed since the nodes were made
}

// bound is what no site below a node can do better than.
type bound struct {
	cpuLoad, memoryLoad float64 // each at least
	load                float64 // the larger of both, at least
	perCPU, perMemory   float64 // at least
	slots               int     // at most
	spare               uint64  // at most
}

// query is one search and the best found so far.
type query struct {
	demand
	sites []site
	best  float64 // only below this; ties go to the first
	room  int
	at    int // -1: none yet
}

func (k *tree) build(sites []site) {
	k.leaves = 1
	for k.leaves < len(k.members) {
		k.leaves *= 2
	}
	if len(k.nodes) != 2*k.leaves {
		k.nodes = make([]bound, 2*k.leaves)
	}
	for i := range k.leaves {
		k.nodes[k.leaves+i] = bound{slots: -1}
		if i < len(k.members) {
			k.nodes[k.leaves+i] = sites[k.members[i]].bound()
		}
	}
	for n := k.leaves - 1; n > 0; n-- {
		k.nodes[n] = k.nodes[2*n].join(k.nodes[2*n+1])
	}
}

// update takes up a change of one site, if it is a member.
func (k *tree) update(sites []site, at int) {
	leaf := at - k.members[0] // where members have no gaps
	if leaf < 0 || leaf >= len(k.members) || k.members[leaf] != at {
		var member bool
		if leaf, member = slices.BinarySearch(k.members, at); !member {
			return
		}
	}
	n := k.leaves + leaf
	k.nodes[n] = sites[at].bound()
	for n /= 2; n > 0; n /= 2 {
		k.nodes[n] = k.nodes[2*n].join(k.nodes[2*n+1])
	}
}

// outdate notes that a member changed. Once it is cheaper to begin anew no more
// is noted.
func (k *tree) outdate(at int) {
	if len(k.stale) <= len(k.members) {
		k.stale = append(k.stale, at)
	}
}

// catchUp takes up the changes since the tree was asked last.
func (k *tree) catchUp(sites []site) {
	if k.nodes == nil || len(k.stale) > len(k.members) {
		k.build(sites)
	} else {
		for _, at := range k.stale {
			k.update(sites, at)
		}
	}
	k.stale = k.stale[:0]
}

func (s *site) bound() bound {
	return bound{s.cpuLoad, s.memoryLoad, max(s.cpuLoad, s.memoryLoad), s.perCPU, s.perMemory, max(s.slots, 0), s.spare()}
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
		min(a.cpuLoad, b.cpuLoad), min(a.memoryLoad, b.memoryLoad), min(a.load, b.load), min(a.perCPU, b.perCPU), min(a.perMemory, b.perMemory),
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
	cpus, mem := float64(uint64(q.count)*q.cpus)*a.perCPU, float64(memory)*a.perMemory
	return max(a.cpuLoad+cpus, a.memoryLoad+mem, a.load+min(cpus, mem)), true
}

// mostRoom is how many forks of the demand fit a site below a node at most.
func (a *bound) mostRoom(q *query) int {
	return int(min(uint64(max(a.slots, 0)), a.spare/max(q.memory, 1)))
}

func (k *tree) search(q *query) { k.searchNode(q, 1, 0, k.leaves) }

// searchNode looks for the least load below a node that covers the leaves
// lo…hi-1, the more promising child first.
func (k *tree) searchNode(q *query, n, lo, hi int) {
	load, ok := k.nodes[n].least(q)
	if !ok || load > q.best || load == q.best && q.at >= 0 && k.members[lo] > q.at {
		return
	}
	if hi-lo == 1 {
		q.consider(k.members[lo])
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
	if !s.fits(q.demand) || slices.Contains(q.tried, s.machine.Name) {
		return
	}
	if load := s.after(q.demand); load < q.best || load == q.best && (q.at < 0 || at < q.at) {
		q.best, q.at = load, at
	}
}

func (k *tree) searchRoom(q *query) { k.searchRoomNode(q, 1, 0, k.leaves) }

func (k *tree) searchRoomNode(q *query, n, lo, hi int) {
	room := k.nodes[n].mostRoom(q)
	if room < q.room || room == 0 || room == q.room && k.members[lo] > q.at {
		return
	}
	if hi-lo == 1 {
		q.considerRoom(k.members[lo])
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
