package batch

import (
	"slices"
	"strconv"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox/roster"
)

// Rules is the version of how a Batch decides. It changes whenever the same
// events would lead to other effects, so that no journal is stepped through by
// other rules than those it was written under.
const Rules = 2

// Times of the protocol between a batch and its machines (F46, F49).
const (
	// BeatEvery is how often a machine at work shows that it lives.
	BeatEvery = 2 * time.Second
	// BeatLimit is the silence after which it has failed.
	BeatLimit = 10 * time.Second
	// SyncEvery is the least time between two progress records of one copy.
	SyncEvery = 100 * time.Millisecond

	askAgain = 5 * time.Second // a snapshot that never came is asked for again
	maxLost  = 2               // starts lost to a restart before the fork is blamed
)

// Params is what a new batch is made of.
type Params struct {
	ID      id.Batch
	Now     time.Time
	Request Request
	// Rand is 32 random bytes, for the name prefixes.
	Rand [32]byte
	// Sources resolves each distinct source of the request.
	Sources []Source
	// Target is the machine that on = host:… means; Local is this one.
	Target id.Machine
}

// Source is a resolved source: a checkpoint.
type Source struct {
	Ref        string        `json:"ref"`                  // as the request writes it
	Checkpoint string        `json:"checkpoint,omitempty"` // the checkpoint's name
	Digest     digest.Digest `json:"digest"`
	MemoryMiB  uint64        `json:"memory_mib,omitempty"` // of the sandbox that was saved; 0 unknown
	// StartMiB is what a fork really takes at its start; 0 unknown.
	StartMiB uint64       `json:"start_mib,omitempty"`
	Held     []id.Machine `json:"held,omitempty"` // who is known to hold it
	Temp     bool         `json:"temp,omitempty"` // made for this batch alone
	Needs    roster.Needs `json:"needs"`
}

// Batch is one request for many forks on its way. Not safe for concurrent
// use: one loop owns it.
type Batch struct {
	id      id.Batch
	req     Request
	where   Where
	target  id.Machine // where not Auto
	sources []Source
	groups  []group
	forks   []fork

	start, now int64 // ns since 1970; now never goes back
	nextID     EffectID
	seq        uint64
	cancelled  bool
	done       bool
	ok, failed int
	lost       map[int]int // starts lost to restarts, by fork

	parts     map[EffectID]*part
	grants    map[EffectID]*part // parts that wait for the answer to Reserve
	pending   []*part            // those without a machine yet, in order
	machines  map[id.Machine]*machine
	copies    map[EffectID]*transfer
	abandoned map[EffectID]id.Machine // grants given up before they were answered
	removals  map[EffectID]removal    // removals not yet confirmed
	asked     EffectID                // the snapshot that is awaited; 0 none
	askedAt   int64
	round     EffectID // the newest snapshot that was answered

	out []Effect
}

// group is one group, with what all its forks share.
type group struct {
	source int // index into sources
	count  int
	first  int // index of its first fork
	base   int // n of its first fork
	prefix string
}

// forkState is a fork's place in its life. A fork is open until it starts;
// what it waits for is its part's to know.
type forkState byte

const (
	open     forkState = 'o'
	starting forkState = 's'
	ready    forkState = 'r'
	ended    forkState = 'f'
)

type fork struct {
	state forkState
	token EffectID // of the current, or the successful, start
	part  *part    // nil once it is ready or ended
}

type removal struct {
	machine id.Machine
	index   int
	why     string
}

// New makes a batch of a request that Validate accepts. Nothing happens
// before the first Step; a Tick will do.
func New(p Params) (*Batch, error) {
	if err := Validate(p.Request); err != nil {
		return nil, err
	}
	b := empty()
	b.id, b.req = p.ID, p.Request
	b.start = p.Now.UnixNano()
	b.now = b.start
	b.where, _ = ParseOn(p.Request.On)
	b.target = id.Local
	if b.where.Host != "" && p.Target != "" {
		b.target = p.Target
	} else if b.where.Host != "" {
		b.target = id.Machine(b.where.Host)
	}
	groups := expand(p.Request)
	total := 0
	for _, g := range groups {
		total += int(g.Count)
	}
	if err := b.setGroups(groups, p.Sources, prefixes(groups, total, p.Rand)); err != nil {
		return nil, err
	}
	for i := range b.groups {
		b.pend(&part{group: i, attempt: 1, open: b.groups[i].indexes()})
	}
	return b, nil
}

func empty() *Batch {
	return &Batch{
		nextID: 1, lost: map[int]int{},
		parts: map[EffectID]*part{}, grants: map[EffectID]*part{}, machines: map[id.Machine]*machine{},
		copies: map[EffectID]*transfer{}, abandoned: map[EffectID]id.Machine{}, removals: map[EffectID]removal{},
	}
}

// setGroups derives groups and forks from the request's groups; the sources
// are kept in the order in which the groups first use them.
func (b *Batch) setGroups(groups []Group, sources []Source, prefix []string) error {
	given := map[string]Source{}
	for _, s := range sources {
		given[s.Ref] = s
	}
	index := map[string]int{}
	base := bases(groups, prefix)
	forks := 0
	for _, g := range groups {
		forks += int(g.Count)
	}
	b.forks = slices.Grow(b.forks, forks)
	b.groups = slices.Grow(b.groups, len(groups))
	b.sources = slices.Grow(b.sources, len(sources))
	for i, g := range groups {
		at, ok := index[g.Source]
		if !ok {
			s, ok := given[g.Source]
			if !ok {
				return errs.New(errs.Internal, "source %q of group %d was not resolved", g.Source, i)
			}
			s.StartMiB = min(s.StartMiB, maxMemoryMiB)
			at = len(b.sources)
			index[g.Source] = at
			b.sources = append(b.sources, s)
		}
		b.groups = append(b.groups, group{source: at, count: int(g.Count), first: len(b.forks), base: base[i], prefix: prefix[i]})
		for range g.Count {
			b.forks = append(b.forks, fork{state: open})
		}
	}
	return nil
}

func (g *group) indexes() []int {
	out := make([]int, g.count)
	for i := range out {
		out[i] = g.first + i
	}
	return out
}

// ID returns the batch's id.
func (b *Batch) ID() id.Batch { return b.id }

// Request returns the request as it was given.
func (b *Batch) Request() Request { return b.req }

// Len returns the number of forks.
func (b *Batch) Len() int { return len(b.forks) }

// Started returns when the batch was made.
func (b *Batch) Started() time.Time { return time.Unix(0, b.start) }

// Done reports whether the done record is out. A batch that is done still
// answers late messages with removals.
func (b *Batch) Done() bool { return b.done }

// Cancelled reports whether the batch was cancelled.
func (b *Batch) Cancelled() bool { return b.cancelled }

// Counts returns how many forks are ready and how many failed so far.
func (b *Batch) Counts() (ok, failed int) { return b.ok, b.failed }

// Seq returns the number of the newest record; 0 when there is none.
func (b *Batch) Seq() uint64 { return b.seq }

// Sources returns the resolved sources, each once.
func (b *Batch) Sources() []Source { return slices.Clone(b.sources) }

// Target returns the one machine the batch may use, empty when it chooses.
func (b *Batch) Target() id.Machine {
	if b.where.Auto {
		return ""
	}
	return b.target
}

// Names returns the names of all forks by index.
func (b *Batch) Names() []id.Name {
	names := make([]id.Name, 0, len(b.forks))
	for i := range b.groups {
		for n := range b.groups[i].count {
			names = append(names, b.groups[i].name(n))
		}
	}
	return names
}

func (g *group) name(n int) id.Name {
	return id.Name(g.prefix + "-" + strconv.Itoa(g.base+n))
}

// groupOf returns the group of a fork.
func (b *Batch) groupOf(index int) int {
	at, _ := slices.BinarySearchFunc(b.groups, index, func(g group, i int) int {
		if i < g.first {
			return 1
		}
		if i >= g.first+g.count {
			return -1
		}
		return 0
	})
	return at
}

func (b *Batch) nameOf(index int) id.Name {
	g := &b.groups[b.groupOf(index)]
	return g.name(index - g.first)
}

// counted returns what a fork of the source is counted as (F44).
func (b *Batch) counted(source int) (cpus uint32, memoryMiB uint64) {
	cpus, memoryMiB = b.req.CPUs, b.req.MemoryMiB
	if cpus == 0 {
		cpus = DefaultCPUs
	}
	if memoryMiB == 0 {
		memoryMiB = DefaultMemoryMiB
		if s := &b.sources[source]; s.MemoryMiB > 0 && slices.Contains(s.Held, id.Local) {
			memoryMiB = min(s.MemoryMiB, maxMemoryMiB)
		}
	}
	return cpus, memoryMiB
}

func (b *Batch) maxParallel() int {
	if b.req.MaxParallelPerHost == 0 {
		return DefaultMaxParallel
	}
	return int(min(b.req.MaxParallelPerHost, MaxForks))
}

// attempts returns how often a fork may be placed.
func (b *Batch) attempts() int {
	switch {
	case b.req.NoRetry || !b.where.Auto:
		return 1
	default:
		return 1 + int(min(max(b.req.Retries, 1), MaxForks))
	}
}

func (b *Batch) newID() EffectID {
	b.nextID++
	return b.nextID - 1
}

func (b *Batch) do(e Effect) { b.out = append(b.out, e) }

func (b *Batch) emit(r Record) {
	b.seq++
	r.Seq = b.seq
	b.do(Emit{Record: r})
}
