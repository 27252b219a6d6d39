package orchestrator

import (
	"strings"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/dispatch"
)

// Config is one run.
type Config struct {
	// ID names the run in history and reports.
	ID   string
	Root string // the workspace, absolute
	// Began is when the user began to wait; zero: when Run is called.
	Began time.Time
	// Tasks in an order in which each comes after its dependencies.
	Tasks   []*run.Task
	Manager run.Manager
	Globals run.Globals
	Environ []string

	Keys    Keys
	Cache   Cache // nil: nothing is looked up or saved
	Worker  Worker
	History History // nil: nothing is remembered
	// Past is what history knows of the tasks.
	Past map[id.Task]Past

	Continue    dispatch.Continue
	Concurrency int
	// Lookups bounds how many keys are derived and asked for at once: a few times
	// the cores, more where a remote cache is asked.
	Lookups int
	// Retries and Timeout are for tasks that say none themselves; 0: none.
	Retries int
	Timeout time.Duration
	// Additive says which tasks add to an upstream's outputs, and so are restored
	// after it; nil: those whose definition says so.
	Additive func(id.Task) bool
	// LogDir is where long output waits; empty: the system's temporary folder.
	LogDir string

	// Listen is told every event, by one goroutine.
	Listen func(time.Time, Event)
	// Replay says that the stored output of a task's hit is wanted. Nil: none is
	// read.
	Replay func(*run.Task) bool
}

// Past is what history knows of a task.
type Past struct {
	Wall  time.Duration // the median
	Flaky bool
}

// refuseNested refuses a run that is started by a task of a run of the same
// workspace: it would wait for files, locks or a terminal that the outer one
// has, or start itself for ever.
func refuseNested(c Config) error {
	for _, v := range c.Environ {
		if root, ok := strings.CutPrefix(v, run.Inside+"="); ok && root == c.Root {
			return errs.New(errs.FailedPrecondition, "this is a task of a run of the same workspace (%s), and a run cannot start another one there: put what it needs under dependsOn", root)
		}
	}
	return nil
}

// prepare fills in what the tasks leave open. A task is copied before it is
// changed: the graph is everybody's.
func prepare(c Config) ([]*run.Task, dispatch.Params) {
	n := len(c.Tasks)
	tasks := make([]*run.Task, n)
	p := dispatch.Params{
		Tasks: tasks, Retries: make([]int, n), Additive: make([]bool, n), Continue: c.Continue,
		Executions: c.Concurrency, Restores: 2 * c.Concurrency, Derivations: max(1, c.Lookups),
	}
	if len(c.Past) > 0 {
		p.Expected = make([]time.Duration, n)
	}
	for i, t := range c.Tasks {
		if t.Timeout == 0 && c.Timeout > 0 && !t.Persistent {
			own := *t
			own.Timeout = c.Timeout
			t = &own
		}
		tasks[i] = t
		p.Additive[i] = t.Additive || c.Additive != nil && c.Additive(t.ID)
		p.Retries[i] = t.Retries
		if t.Retries == 0 {
			p.Retries[i] = c.Retries
		}
		past, known := c.Past[t.ID]
		if known {
			p.Expected[i] = past.Wall
		}
		if past.Flaky && p.Retries[i] == 0 && !t.Interactive { // what came of that one was the user's doing
			p.Retries[i] = 1
		}
	}
	return tasks, p
}

func describe(c Config, tasks []*run.Task, p dispatch.Params) Began {
	b := Began{Run: c.ID, Root: c.Root, Concurrency: c.Concurrency, Tasks: make([]TaskInfo, len(tasks))}
	for i, t := range tasks {
		info := TaskInfo{Task: t.ID, Project: t.Project, Name: t.Name, Dir: t.Dir, Deps: t.Deps, Group: uncounted(t), Persistent: t.Persistent, Interactive: t.Interactive, Logs: t.OutputLogs}
		if info.Deps == nil {
			info.Deps = []id.Task{}
		}
		if p.Expected != nil {
			info.ExpectedMS = p.Expected[i].Milliseconds()
		}
		b.Tasks[i] = info
	}
	return b
}
