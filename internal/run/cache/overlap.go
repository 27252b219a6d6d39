package cache

import (
	"cmp"
	"slices"
	"strings"

	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/cache/glob"
)

// Overlap is a pair of tasks of which some file is an output of both.
type Overlap struct {
	// First and Second are the tasks; when Edge is set Second waits for First,
	// directly or not, and so adds to its outputs. Without an edge it is chance
	// whose file stays.
	First, Second id.Task
	Edge          bool
}

// Overlaps finds the cached tasks whose outputs provably overlap. tasks are in
// topological order. Where many tasks have outputs in one folder, each is
// paired with the first few only, so that the work stays in proportion.
func Overlaps(tasks []*run.Task) ([]Overlap, error) {
	f := finder{tasks: tasks, order: make(map[id.Task]int, len(tasks)), at: map[string][]int{}, known: map[int]map[int]bool{}}
	sets := make([]*glob.Set, len(tasks))
	for i, t := range tasks {
		f.order[t.ID] = i
		if !t.Cache || len(t.Outputs) == 0 {
			continue
		}
		var err error
		if sets[i], err = glob.New(t.Dir, t.Outputs); err != nil {
			return nil, err
		}
		for _, base := range sets[i].Bases() {
			if list := f.at[base]; len(list) < alike {
				f.at[base] = append(list, i)
			}
		}
	}
	var found []Overlap
	for i := range tasks {
		for _, o := range f.above(i, sets[i]) {
			if glob.Overlap(sets[o], sets[i]) {
				first, second := min(o, i), max(o, i)
				found = append(found, Overlap{First: tasks[first].ID, Second: tasks[second].ID, Edge: f.waits(second, first)})
			}
		}
	}
	slices.SortFunc(found, func(a, b Overlap) int {
		return cmp.Or(cmp.Compare(f.order[a.Second], f.order[b.Second]), cmp.Compare(f.order[a.First], f.order[b.First]))
	})
	return slices.Compact(found), nil
}

// alike is how many tasks of one folder the others are compared with.
const alike = 8

// finder knows tasks by the folders in which their outputs begin.
type finder struct {
	tasks []*run.Task
	order map[id.Task]int
	at    map[string][]int
	known map[int]map[int]bool // which tasks wait for one
}

// above lists the other tasks whose outputs begin where those of task i do, or
// in a folder that holds it. Of two tasks one always finds the other so.
func (f *finder) above(i int, set *glob.Set) []int {
	var all []int
	for _, base := range set.Bases() {
		for dir, more := base, true; more; dir, more = up(dir) {
			all = append(all, f.at[dir]...)
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(o int) bool { return o == i })
}

func up(dir string) (string, bool) {
	if dir == "" {
		return "", false
	}
	return dir[:max(0, strings.LastIndexByte(dir, '/'))], true
}

// waits says that the task at index from waits for the one at index to. Tasks
// before that one in the order cannot lead there. What was found out about one
// task serves the next.
func (f *finder) waits(from, to int) bool {
	known := f.known[to]
	if known == nil {
		known = map[int]bool{to: true}
		f.known[to] = known
	}
	if v, ok := known[from]; ok {
		return v
	}
	seen := map[int]bool{from: true}
	for next := []int{from}; len(next) > 0; {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		for _, d := range f.tasks[at].Deps {
			i, ok := f.order[d]
			if !ok || i < to || seen[i] {
				continue
			}
			seen[i] = true
			v, ok := known[i]
			if v {
				known[from] = true
				return true
			}
			if !ok {
				next = append(next, i)
			}
		}
	}
	for i := range seen {
		known[i] = false
	}
	return false
}
