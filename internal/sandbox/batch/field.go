package batch

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"brood/internal/base/id"
	"brood/internal/sandbox/roster"
)

// field is all machines of one snapshot, arranged so that the best one for a
// part is found without looking at each: machines that can restore the same
// checkpoints form a kind, and each kind has a tree whose nodes know the least
// any machine below them can be loaded.
type field struct {
	sites   []site
	kinds   []tree
	names   map[id.Machine]int
	sources []Source
	held    [][]int        // by source: places of machines that hold it, ascending
	holders []*tree        // by source: over those that can also restore it; made when asked
	able    []map[int]bool // by source: the kinds that can restore it
	holding [][]int        // by place: the sources that the machine holds
	usual   weight         // what most parts ask for
}

// site is one machine with what this batch has there.
type site struct {
	machine    *roster.Machine
	at         int // its place in field.sites
	kind       int
	cpus       uint64
	memory     uint64
	slots      int
	perCPU     float64 // 1/cores
	perMemory  float64 // 1/MiB
	cpuLoad    float64
	memoryLoad float64
}

// demand is what a part asks of a machine. cpus and memory are for one fork.
type demand struct {
	source int
	count  int
	cpus   uint64
	memory uint64
	tried  []id.Machine
}

// weight is what the forks of a demand ask for together.
type weight struct {
	cpus   uint64
	memory uint64 // MiB
}

func (d demand) weight() weight {
	return weight{uint64(d.count) * d.cpus, uint64(d.count) * d.memory}
}

func newField(b *Batch, list []roster.Machine, usual weight) *field {
	f := &field{names: make(map[id.Machine]int, len(list)), sites: make([]site, 0, len(list)), sources: b.sources, usual: usual}
	kinds := map[string]int{}
	cpus, _ := b.counted(0)
	for i := range list {
		m := &list[i]
		if _, twice := f.names[m.Name]; twice || !m.Available() {
			continue
		}
		f.names[m.Name] = 0
		abilities := m.Abilities()
		k, ok := kinds[abilities]
		if !ok {
			k = len(kinds)
			kinds[abilities] = k
		}
		s := site{
			machine: m, kind: k, cpus: m.ReservedCPUs, memory: m.ReservedMemoryMiB, slots: m.Slots(2 * MaxForks),
			perCPU: 1 / float64(max(m.Cores, 1)), perMemory: 1 / float64(max(m.MemoryMiB, 1)),
		}
		if mine := b.machines[m.Name]; mine != nil {
			s.cpus += uint64(mine.own) * uint64(cpus)
			s.memory += mine.ownMemory
			s.slots -= mine.own
		}
		s.weigh()
		f.sites = append(f.sites, s)
	}
	f.arrange(len(kinds))
	f.findHolders(b)
	return f
}

// usual returns what most of the parts ask for. The trees are exact for it,
// close for what asks for more, and never wrong.
func (b *Batch) usual(parts []*part) weight {
	votes := map[weight]int{}
	var most weight
	for _, p := range parts {
		w := b.demand(p).weight()
		if votes[w]++; votes[w] > votes[most] {
			most = w
		}
	}
	return most
}

func (s *site) weigh() {
	s.cpuLoad = float64(s.cpus) * s.perCPU
	s.memoryLoad = float64(s.memory) * s.perMemory
}

// arrange sorts the machines so that alike ones are neighbours, which keeps
// the trees' bounds tight, and builds the trees.
func (f *field) arrange(kinds int) {
	slices.SortFunc(f.sites, order)
	f.kinds = make([]tree, kinds)
	for at := range f.sites {
		s := &f.sites[at]
		s.at = at
		f.names[s.machine.Name] = at
		k := &f.kinds[s.kind]
		k.members = append(k.members, at)
	}
	for i := range f.kinds {
		f.kinds[i].build(f)
	}
}

// order puts alike machines side by side, and is the same whatever the order
// of the list.
func order(s, t site) int {
	if c := cmp.Or(cmp.Compare(s.kind, t.kind), cmp.Compare(s.perCPU, t.perCPU), cmp.Compare(s.perMemory, t.perMemory)); c != 0 {
		return c
	}
	if c := cmp.Or(cmp.Compare(s.cpuLoad, t.cpuLoad), cmp.Compare(s.memoryLoad, t.memoryLoad)); c != 0 {
		return c
	}
	return cmp.Or(localFirst(s.machine.Name, t.machine.Name), cmp.Compare(s.machine.Name, t.machine.Name))
}

func localFirst(a, b id.Machine) int {
	switch {
	case a == b:
		return 0
	case a == id.Local:
		return -1
	case b == id.Local:
		return 1
	}
	return 0
}

func (f *field) findHolders(b *Batch) {
	f.held = make([][]int, len(f.sources))
	f.holders = make([]*tree, len(f.sources))
	f.able = make([]map[int]bool, len(f.sources))
	of := map[string][]int{} // sources of a digest
	for i := range f.sources {
		of[string(f.sources[i].Digest)] = append(of[string(f.sources[i].Digest)], i)
		for _, m := range f.sources[i].Held {
			if at, ok := f.names[m]; ok {
				f.held[i] = append(f.held[i], at)
			}
		}
	}
	note := func(d string, at int) {
		for _, i := range of[d] {
			f.held[i] = append(f.held[i], at)
		}
	}
	for at := range f.sites {
		for _, d := range f.sites[at].machine.Holds {
			note(string(d), at)
		}
		if mine := b.machines[f.sites[at].machine.Name]; mine != nil {
			for _, d := range mine.synced {
				note(string(d), at)
			}
		}
	}
	f.holding = make([][]int, len(f.sites))
	for i := range f.held {
		slices.Sort(f.held[i])
		f.held[i] = slices.Compact(f.held[i])
		for _, at := range f.held[i] {
			f.holding[at] = append(f.holding[at], i)
		}
	}
}

func (f *field) holder(s *site, source int) bool {
	_, ok := slices.BinarySearch(f.held[source], s.at)
	return ok
}

// ableKinds returns which kinds of machine can restore a source.
func (f *field) ableKinds(source int) map[int]bool {
	if f.able[source] == nil {
		needs := f.sources[source].Needs
		needs.Only = ""
		f.able[source] = map[int]bool{}
		for k := range f.kinds {
			if f.sites[f.kinds[k].members[0]].machine.Missing(needs) == "" {
				f.able[source][k] = true
			}
		}
	}
	return f.able[source]
}

// candidates counts the machines that can restore the source and were not
// tried.
func (f *field) candidates(d demand) int {
	able := f.ableKinds(d.source)
	if only := f.sources[d.source].Needs.Only; only != "" {
		at, ok := f.names[only]
		if !ok || !able[f.sites[at].kind] || slices.Contains(d.tried, only) {
			return 0
		}
		return 1
	}
	n := 0
	for k := range able {
		n += len(f.kinds[k].members)
	}
	for _, t := range d.tried {
		if at, ok := f.names[t]; ok && able[f.sites[at].kind] {
			n--
		}
	}
	return n
}

// after is the load a machine would have with the weight on it. It is made of
// the same sums as the trees' bounds, so that they compare exactly.
func (s *site) after(w weight) float64 {
	return max(s.cpuLoad+float64(w.cpus)*s.perCPU, s.memoryLoad+float64(w.memory)*s.perMemory)
}

// spare is the counted memory that is not promised.
func (s *site) spare() uint64 { return s.machine.MemoryMiB - min(s.memory, s.machine.MemoryMiB) }

func (s *site) fits(d demand) bool {
	return s.slots >= d.count && s.spare() >= uint64(d.count)*d.memory
}

// best returns the machine for all of the demand, nil when it fits nowhere:
// the least loaded, or a holder of the checkpoint that is hardly busier.
func (f *field) best(d demand) (*site, string) {
	least, load := f.least(d)
	if least == nil {
		return nil, ""
	}
	why := "least loaded"
	if f.candidates(d) == 1 {
		why = "the only machine for it"
	}
	if f.holder(least, d.source) {
		return least, fmt.Sprintf("%s (%s), holds the checkpoint", why, percent(load))
	}
	if h, hl := f.leastHolder(d, load+holderBonus+rounding); h != nil && hl == load {
		return h, fmt.Sprintf("%s (%s), holds the checkpoint", why, percent(load))
	} else if h != nil {
		return h, fmt.Sprintf("holds the checkpoint and is hardly busier (%s) than the least loaded, %s (%s)", percent(hl), least.machine.Name, percent(load))
	}
	return least, fmt.Sprintf("%s (%s), the checkpoint is copied there first", why, percent(load))
}

// least returns the least loaded machine that takes the demand.
func (f *field) least(d demand) (*site, float64) {
	q := f.query(d, math.Inf(1))
	able := f.ableKinds(d.source)
	if only := f.sources[d.source].Needs.Only; only != "" {
		if at, ok := f.names[only]; ok && able[f.sites[at].kind] {
			q.consider(at)
		}
		return q.found()
	}
	for k := range f.kinds {
		if able[k] {
			f.kinds[k].search(&q)
		}
	}
	return q.found()
}

// leastHolder is least among the machines that hold the checkpoint, below a
// limit.
func (f *field) leastHolder(d demand, limit float64) (*site, float64) {
	q := f.query(d, limit)
	t := f.holders[d.source]
	if t == nil {
		t = &tree{}
		able := f.ableKinds(d.source)
		only := f.sources[d.source].Needs.Only
		for _, at := range f.held[d.source] {
			if able[f.sites[at].kind] && (only == "" || only == f.sites[at].machine.Name) {
				t.members = append(t.members, at)
			}
		}
		f.holders[d.source] = t
	}
	if len(t.members) > 0 {
		t.catchUp(f)
		t.search(&q)
	}
	return q.found()
}

func (f *field) query(d demand, limit float64) query {
	w := d.weight()
	return query{demand: d, weight: w, field: f, usual: w.cpus >= f.usual.cpus && w.memory >= f.usual.memory, best: limit, at: -1}
}

func (q *query) found() (*site, float64) {
	if q.at < 0 {
		return nil, 0
	}
	return &q.field.sites[q.at], q.best
}

// roomiest returns the machine with room for most of the demand, and for how
// much of it.
func (f *field) roomiest(d demand) (*site, int) {
	q := f.query(d, 0)
	able := f.ableKinds(d.source)
	if only := f.sources[d.source].Needs.Only; only != "" {
		if at, ok := f.names[only]; ok && able[f.sites[at].kind] {
			q.considerRoom(at)
		}
	} else {
		for k := range f.kinds {
			if able[k] {
				f.kinds[k].searchRoom(&q)
			}
		}
	}
	if q.at < 0 {
		return nil, 0
	}
	return &f.sites[q.at], min(q.room, d.count)
}

// take puts the demand on a machine.
func (f *field) take(s *site, d demand) {
	w := d.weight()
	s.cpus += w.cpus
	s.memory += w.memory
	s.slots -= d.count
	s.weigh()
	f.kinds[s.kind].update(f, s.at)
	for _, source := range f.holding[s.at] {
		if t := f.holders[source]; t != nil {
			t.outdate(s.at)
		}
	}
}

// nobody says why a source has no candidates.
func (f *field) nobody(d demand) string {
	needs := f.sources[d.source].Needs
	switch {
	case len(d.tried) > 0:
		return "there is none that can restore it and was not tried"
	case len(f.sites) == 0:
		return "no machine is online that provides sandboxes: turn one on with `brood machine provide on`"
	case len(f.sites) == 1:
		return f.sites[0].machine.Missing(needs)
	}
	return fmt.Sprintf("none of the %d machines online can restore it: %s", len(f.sites), f.sites[0].machine.Missing(needs))
}

// full says that all candidates are full.
func (f *field) full(d demand) string {
	n := f.candidates(d)
	noun := "machines that can restore it are"
	if n == 1 {
		noun = "machine that can restore it is"
	}
	return fmt.Sprintf("%d %s full, counting %d MiB for each fork: remove sandboxes, or count less memory", n, noun, d.memory)
}
