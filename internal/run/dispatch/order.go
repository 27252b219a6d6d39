package dispatch

import (
	"math/bits"
	"slices"
	"time"
)

// ranks says how urgent each task is, the larger the sooner: its longest
// remaining chain by history where there is any, else how many tasks wait for
// it. Durations that are made up lead to worse orders than counting does, so
// they are used only when some are known; those that are not are then taken for
// the median of those that are.
func ranks(p Params, dependants [][]int32) []int64 {
	if typical := median(p.Expected); typical > 0 {
		return chains(p, dependants, typical)
	}
	return counts(dependants)
}

func median(all []time.Duration) time.Duration {
	known := make([]time.Duration, 0, len(all))
	for _, d := range all {
		if d > 0 {
			known = append(known, d)
		}
	}
	if len(known) == 0 {
		return 0
	}
	slices.Sort(known)
	return known[len(known)/2]
}

// chains is for each task its own time and that of the longest chain of tasks
// behind it, in nanoseconds.
func chains(p Params, dependants [][]int32, typical time.Duration) []int64 {
	all := make([]int64, len(p.Tasks))
	for i := len(p.Tasks) - 1; i >= 0; i-- {
		var behind int64
		for _, d := range dependants[i] {
			behind = max(behind, all[d])
		}
		own := p.Expected[i]
		switch {
		case p.Tasks[i].Command.Empty() || p.Tasks[i].Excluded:
			own = 0
		case own <= 0:
			own = typical
		}
		all[i] = behind + int64(own)
	}
	return all
}

// sweep is how many words of 64 tasks are counted in one sweep over the graph:
// it bounds the memory to 512 bytes a task.
const sweep = 64

// counts is for each task how many wait for it, directly or not: sets of bits,
// joined from the last task to the first, a slice of all tasks at a time.
func counts(dependants [][]int32) []int64 {
	n := len(dependants)
	all := make([]int64, n)
	sets := make([]uint64, n*min(sweep, n/64+1))
	for from := 0; from < n; from += sweep * 64 {
		words := min(sweep, (n-from+63)/64)
		clear(sets)
		for i := n - 1; i >= 0; i-- {
			own := sets[i*words : (i+1)*words]
			for _, d := range dependants[i] {
				if d := int(d); d >= from && d < from+words*64 {
					own[(d-from)/64] |= 1 << ((d - from) % 64)
				}
				for w, b := range sets[int(d)*words : (int(d)+1)*words] {
					own[w] |= b
				}
			}
			for _, b := range own {
				all[i] += int64(bits.OnesCount64(b))
			}
		}
	}
	return all
}

// queue is a heap of the tasks that may begin, the most urgent first. Without
// ranks it is in the order of the list.
type queue struct {
	tasks []int32
	rank  []int64
}

func (q *queue) Len() int { return len(q.tasks) }

func (q *queue) Less(i, j int) bool {
	a, b := q.tasks[i], q.tasks[j]
	if q.rank != nil && q.rank[a] != q.rank[b] {
		return q.rank[a] > q.rank[b]
	}
	return a < b
}

func (q *queue) Swap(i, j int) { q.tasks[i], q.tasks[j] = q.tasks[j], q.tasks[i] }
func (q *queue) Push(x any)    { q.tasks = append(q.tasks, x.(int32)) }

func (q *queue) Pop() any {
	last := q.tasks[len(q.tasks)-1]
	q.tasks = q.tasks[:len(q.tasks)-1]
	return last
}
