package orchestrator

import (
	"cmp"
	"slices"
	"time"

	"brood/internal/base/id"
	"brood/internal/run"
)

// slowestShown is how many of the slowest tasks a summary names.
const slowestShown = 10

// finish adds the run up.
func (r *Report) finish(tasks []*run.Task, wall time.Duration) {
	f := Finished{Run: r.Run, Status: run.Success, WallMS: wall.Milliseconds()}
	for i := range r.Ended {
		f.add(&r.Ended[i])
	}
	switch {
	case f.Failed > 0:
		f.Status = run.Failed
	case f.Aborted > 0:
		f.Status = run.Aborted
	}
	f.Slowest = r.slowest()
	f.CriticalPath = r.critical(tasks)
	r.Finished = f
}

func (f *Finished) add(e *Ended) {
	f.Tasks++
	if e.Unsaved != "" {
		f.Unsaved++
	}
	switch e.Status {
	case run.Success:
		f.Success++
	case run.Cached:
		f.Cached++
		f.SavedMS += e.SavedMS
		return
	case run.Failed:
		f.Failed++
		f.Failures = append(f.Failures, e.Task)
	case run.Skipped:
		f.Skipped++
	case run.Aborted:
		f.Aborted++
	}
	f.WorkMS += e.TookMS
	f.CPUMS += e.CPUMS
}

func (r *Report) slowest() []Step {
	persistent := map[id.Task]bool{}
	for _, t := range r.Tasks {
		if t.Persistent {
			persistent[t.Task] = true
		}
	}
	var all []Step
	for _, e := range r.Ended {
		if e.Attempts > 0 && e.TookMS > 0 && !persistent[e.Task] {
			all = append(all, Step{Task: e.Task, TookMS: e.TookMS})
		}
	}
	slices.SortFunc(all, func(a, b Step) int {
		return cmp.Or(cmp.Compare(b.TookMS, a.TookMS), cmp.Compare(a.Task, b.Task))
	})
	return all[:min(len(all), slowestShown)]
}

// critical is the chain of dependencies whose executed tasks took longest
// together; hits wait for nobody.
func (r *Report) critical(tasks []*run.Task) []Step {
	outcome := r.outcomes()
	index := make(map[id.Task]int, len(tasks))
	total := make([]int64, len(tasks))
	before := make([]int, len(tasks))
	longest := -1
	for i, t := range tasks {
		index[t.ID] = i
		before[i] = -1
		for _, d := range t.Deps {
			if at := index[d]; before[i] < 0 || total[at] > total[before[i]] {
				before[i] = at
			}
		}
		if before[i] >= 0 {
			total[i] = total[before[i]]
		}
		if e := outcome[t.ID]; e != nil && e.Attempts > 0 && !t.Persistent {
			total[i] += e.TookMS
		}
		if longest < 0 || total[i] > total[longest] {
			longest = i
		}
	}
	var path []Step
	for i := longest; i >= 0; i = before[i] {
		if e := outcome[tasks[i].ID]; e != nil && e.Attempts > 0 && e.TookMS > 0 {
			path = append(path, Step{Task: tasks[i].ID, TookMS: e.TookMS})
		}
	}
	slices.Reverse(path)
	return path
}
