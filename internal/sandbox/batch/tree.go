package batch

import (
	"slices"
)

// tree finds the best of some sites. Node 1 is the root, node n has the
// children 2n and 2n+1, the leaves are blocks of members in order.
type tree struct {
	members []int // places in field.sites, ascending
	leaves  int   // power of two
	nodes   []bound
	stale   []int // members that changed since the nodes were made
}

// block is how many members share a leaf: looking at a few of them costs less
// than a tree that does not fit the processor's caches.
const block = 4

// bound is what no site below a node can do better than.
type bound struct {
	cpuLoad, memoryLoad float64 // each at least
	load                float64 // the larger of both, at least
	perCPU, perMemory   float64 // at least
	slots               int     // at most
	spare               uint64  // at most
	usual               float64 // load with the usual demand on it, at least; what asks for no less leads to no less
}

// query is one search and the best found so far.
type query struct {
	demand demand
	weight weight // of the demand
	field  *field
	usual  bool    // it asks for no less than the usual demand
	best   float64 // only below this; ties go to the first
	room   int
	at     int // -1: none yet
}

func (k *tree) build(f *field) {
	k.leaves = 1
	for k.leaves*block < len(k.members) {
		k.leaves *= 2
	}
	if len(k.nodes) != 2*k.leaves {
		k.nodes = make([]bound, 2*k.leaves)
	}
	for i := range k.leaves {
		k.nodes[k.leaves+i] = k.leaf(f, i)
	}
	for n := k.leaves - 1; n > 0; n-- {
		k.nodes[n] = k.nodes[2*n].join(k.nodes[2*n+1])
	}
}

// leaf bounds a block.
func (k *tree) leaf(f *field, i int) bound {
	b := bound{slots: -1}
	for _, at := range k.block(i) {
		b = b.join(f.bound(at))
	}
	return b
}

func (k *tree) block(i int) []int {
	n := len(k.members)
	return k.members[min(i*block, n):min((i+1)*block, n)]
}

// update takes up a change of one site, if it is a member.
func (k *tree) update(f *field, at int) {
	i := at - k.members[0] // where members have no gaps
	if i < 0 || i >= len(k.members) || k.members[i] != at {
		var member bool
		if i, member = slices.BinarySearch(k.members, at); !member {
			return
		}
	}
	n := k.leaves + i/block
	k.nodes[n] = k.leaf(f, i/block)
	for n /= 2; n > 0; n /= 2 {
		b := k.nodes[2*n].join(k.nodes[2*n+1])
		if b == k.nodes[n] {
			return
		}
		k.nodes[n] = b
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
func (k *tree) catchUp(f *field) {
	if k.nodes == nil || len(k.stale) > len(k.members) {
		k.build(f)
	} else {
		for _, at := range k.stale {
			k.update(f, at)
		}
	}
	k.stale = k.stale[:0]
}

func (f *field) bound(at int) bound {
	s := &f.sites[at]
	return bound{s.cpuLoad, s.memoryLoad, max(s.cpuLoad, s.memoryLoad), s.perCPU, s.perMemory, max(s.slots, 0), s.spare(), s.after(f.usual)}
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
		max(a.slots, b.slots), max(a.spare, b.spare), min(a.usual, b.usual),
	}
}

// least is the least load the demand can lead to below a node; ok is false
// when it fits nowhere there.
func (a *bound) least(q *query) (load float64, ok bool) {
	if a.slots < q.demand.count || a.spare < q.weight.memory {
		return 0, false
	}
	cpus, mem := float64(q.weight.cpus)*a.perCPU, float64(q.weight.memory)*a.perMemory
	load = max(a.cpuLoad+cpus, a.memoryLoad+mem, a.load+min(cpus, mem))
	if q.usual {
		load = max(load, a.usual)
	}
	return load, true
}

// mostRoom is how many forks of the demand fit a site below a node at most.
func (a *bound) mostRoom(q *query) int {
	return int(min(uint64(max(a.slots, 0)), a.spare/max(q.demand.memory, 1)))
}

// search looks for the least load of all members.
func (k *tree) search(q *query) {
	if load, ok := k.nodes[1].least(q); ok {
		k.searchNode(q, 1, 0, k.leaves, load)
	}
}

// searchNode looks for the least load below a node that covers the leaves
// lo…hi-1 and leads to load at least, the more promising child first.
func (k *tree) searchNode(q *query, n, lo, hi int, load float64) {
	if load > q.best || load == q.best && q.at >= 0 && k.members[lo*block] > q.at {
		return
	}
	if hi-lo == 1 {
		for _, at := range k.block(lo) {
			q.consider(at)
		}
		return
	}
	mid := (lo + hi) / 2
	left, toLeft := k.nodes[2*n].least(q)
	right, toRight := k.nodes[2*n+1].least(q)
	if toRight && right < left {
		k.searchNode(q, 2*n+1, mid, hi, right)
		toRight = false
	}
	if toLeft {
		k.searchNode(q, 2*n, lo, mid, left)
	}
	if toRight {
		k.searchNode(q, 2*n+1, mid, hi, right)
	}
}

// consider takes a site when it is better than what was found.
func (q *query) consider(at int) {
	s := &q.field.sites[at]
	if !s.fits(q.demand) || slices.Contains(q.demand.tried, s.machine.Name) {
		return
	}
	if load := s.after(q.weight); load < q.best || load == q.best && (q.at < 0 || at < q.at) {
		q.best, q.at = load, at
	}
}

func (k *tree) searchRoom(q *query) { k.searchRoomNode(q, 1, 0, k.leaves) }

func (k *tree) searchRoomNode(q *query, n, lo, hi int) {
	room := k.nodes[n].mostRoom(q)
	if room < q.room || room == 0 || room == q.room && k.members[lo*block] > q.at {
		return
	}
	if hi-lo == 1 {
		for _, at := range k.block(lo) {
			q.considerRoom(at)
		}
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
	s := &q.field.sites[at]
	b := q.field.bound(at)
	room := b.mostRoom(q)
	if room == 0 || slices.Contains(q.demand.tried, s.machine.Name) {
		return
	}
	if room > q.room || room == q.room && at < q.at {
		q.room, q.at = room, at
	}
}
