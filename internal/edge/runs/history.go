package runs

import (
	"context"
	"path/filepath"
	"runtime"
	"time"

	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/history"
	"brood/internal/run/orchestrator"
)

// platform is this machine's, as history and workers name it.
const platform = runtime.GOOS + "/" + runtime.GOARCH

// history is that of this home.
func (a *app) history(warn func(string)) (*history.History, error) {
	h, err := a.OwnDir()
	if err != nil {
		return nil, err
	}
	return history.New(filepath.Join(h.Dir(), "history.db"), warn), nil
}

// past is a history as the orchestrator wants it.
type past struct {
	*history.History
	command []string
	keys    *keys
}

// Record is orchestrator.History.
func (p past) Record(ctx context.Context, r *orchestrator.Report) error {
	f := r.Finished
	all := &history.Run{
		ID: r.Run, Workspace: r.Root, Platform: platform, Command: p.command,
		Began: r.At, Ended: r.At.Add(time.Duration(f.WallMS) * time.Millisecond), Status: f.Status,
		Counts: map[run.Status]int{},
		Tasks:  make([]history.Task, len(r.Ended)),
	}
	for i := range r.Ended {
		all.Counts[r.Ended[i].Status]++
		all.Tasks[i] = p.task(r, &r.Ended[i])
	}
	return p.History.Record(ctx, all)
}

func (p past) task(r *orchestrator.Report, e *orchestrator.Ended) history.Task {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	t := history.Task{
		ID: e.Task, Status: e.Status, Key: e.Key, Exit: e.Exit, Attempts: e.Attempts, Took: ms(e.RanMS), Unsaved: e.Unsaved,
		Usage: run.Usage{CPU: ms(e.CPUMS), PeakMemory: e.PeakMemory, Sampled: e.Sampled}, Parts: p.keys.parts[e.Task],
	}
	if e.Attempts > 0 || e.Status == run.Cached {
		t.Began = r.At.Add(ms(e.BeganMS))
		t.Ended = t.Began.Add(ms(e.TookMS))
	}
	if e.Status == run.Cached {
		t.Took = ms(e.SavedMS)
	}
	return t
}

// expectations is what a run wants to know of the past.
func expectations(figures map[id.Task]history.Figures, tasks []*run.Task) map[id.Task]orchestrator.Past {
	all := make(map[id.Task]orchestrator.Past, len(tasks))
	for _, t := range tasks {
		if f, known := figures[t.ID]; known {
			all[t.ID] = orchestrator.Past{Wall: f.Wall, Flaky: f.Flaky && t.Cache}
		}
	}
	return all
}
