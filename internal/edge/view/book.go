package view

import (
	"slices"
	"time"

	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/orchestrator"
)

// book is what a view knows of its run.
type book struct {
	began       time.Time
	concurrency int
	tasks       []*task
	index       map[id.Task]*task
	deps        [][]int32
	typical     time.Duration // of a task without history; 0: no task has any
	running     []*task       // in the order in which they began
	queued      []*task       // for another run
	count       map[run.Status]int
	total       int
	failures    []*task
	unsaved     []*task
	warnings    []string
	uploading   int // results that are waited for
	finished    *orchestrator.Finished
}

// task is what a view knows of one task.
type task struct {
	at      int
	info    orchestrator.TaskInfo
	status  run.Status
	cache   string
	remote  bool
	damage  string // why its hit is none
	key     run.Key
	attempt int
	began   time.Time
	ended   *orchestrator.Ended
	mode    string
	headed  bool // its first line was shown
	colour  string

	line []byte // of its output, not ended yet
	held held   // output shown later, or again
}

func newBook() *book {
	return &book{index: map[id.Task]*task{}, count: map[run.Status]int{}}
}

func (b *book) begin(at time.Time, e orchestrator.Began) {
	b.began, b.concurrency = at, e.Concurrency
	var known []int64
	for i, info := range e.Tasks {
		t := &task{at: i, info: info, status: run.Waiting}
		var deps []int32
		for _, d := range info.Deps {
			if up := b.index[d]; up != nil {
				deps = append(deps, int32(up.at))
			}
		}
		b.tasks, b.deps = append(b.tasks, t), append(b.deps, deps)
		b.index[info.Task] = t
		if info.ExpectedMS > 0 {
			known = append(known, info.ExpectedMS)
		}
		if !info.Group {
			b.total++
		}
	}
	if len(known) > 0 {
		slices.Sort(known)
		b.typical = time.Duration(known[len(known)/2]) * time.Millisecond
	}
}

// note takes an event in and returns the task that it is about.
func (b *book) note(at time.Time, e orchestrator.Event) *task {
	switch e := e.(type) {
	case orchestrator.Began:
		b.begin(at, e)
	case orchestrator.Keyed:
		t := b.of(e.Task)
		t.headed = t.headed && t.cache == e.Cache // it was about another answer
		t.key, t.cache, t.remote, t.damage = e.Key, e.Cache, e.Remote, e.Unrestored
		return t
	case orchestrator.Waiting:
		t := b.of(e.Task)
		if b.queued = append(b.queued, t); t.began.IsZero() {
			t.began = at
		}
		return t
	case orchestrator.Started:
		t := b.of(e.Task)
		b.queued = without(b.queued, t)
		t.status, t.attempt = run.Running, e.Attempt
		if e.Attempt == 1 {
			t.began = at
			b.running = append(b.running, t)
		}
		if t.key == "" {
			t.key = e.Key
		}
		return t
	case orchestrator.Output:
		return b.of(e.Task)
	case orchestrator.Retrying:
		return b.of(e.Task)
	case orchestrator.Ended:
		return b.end(e)
	case orchestrator.Warning:
		b.warnings = append(b.warnings, e.Message)
		if e.Task != "" {
			return b.of(e.Task)
		}
	case orchestrator.Uploading:
		b.uploading = e.Left
	case orchestrator.Finished:
		b.finished = &e
	}
	return nil
}

func (b *book) end(e orchestrator.Ended) *task {
	t := b.of(e.Task)
	t.status, t.ended = e.Status, &e
	b.count[e.Status]++
	if e.Status == run.Failed {
		b.failures = append(b.failures, t)
	}
	if e.Unsaved != "" {
		b.unsaved = append(b.unsaved, t)
	}
	b.running, b.queued = without(b.running, t), without(b.queued, t)
	return t
}

func without(list []*task, t *task) []*task {
	if i := slices.Index(list, t); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// of is never nil: an event of a task that nobody announced is shown too.
func (b *book) of(name id.Task) *task {
	t := b.index[name]
	if t == nil {
		t = &task{at: -1, info: orchestrator.TaskInfo{Task: name}}
		b.index[name] = t
	}
	return t
}

func (b *book) done() int {
	n := 0
	for status, k := range b.count {
		if status.Final() {
			n += k
		}
	}
	return n
}

// ahead says how much of the run is done, from 0 to 1, and how long the rest
// will take; 0 when nothing is known. What the cache answers takes no time, and
// the rest is at least its longest chain, and its work over the places there
// are.
func (b *book) ahead(now time.Time) (share float64, left time.Duration) {
	if b.typical == 0 {
		if b.total == 0 {
			return 0, 0
		}
		return float64(b.done()) / float64(b.total), 0
	}
	var total, open, longest time.Duration
	ends := make([]time.Duration, len(b.tasks))
	for i, t := range b.tasks {
		whole, rest := b.expects(t, now)
		total, open = total+whole, open+rest
		for _, d := range b.deps[i] {
			ends[i] = max(ends[i], ends[d])
		}
		ends[i] += rest
		longest = max(longest, ends[i])
	}
	if total == 0 {
		return 1, 0
	}
	return 1 - float64(open)/float64(total), max(longest, open/time.Duration(max(1, b.concurrency)))
}

// expects is how long a task takes as a whole, and what of it is to come.
func (b *book) expects(t *task, now time.Time) (whole, rest time.Duration) {
	if t.info.Group || t.info.Persistent || t.cache == "hit" {
		return 0, 0
	}
	whole = b.typical
	if t.info.ExpectedMS > 0 {
		whole = time.Duration(t.info.ExpectedMS) * time.Millisecond
	}
	switch {
	case t.status.Final():
		return whole, 0
	case t.status == run.Running:
		return whole, max(0, whole-now.Sub(t.began))
	}
	return whole, whole
}
