package dispatch

import (
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/run"
)

// Continue says what a failure stops.
type Continue string

// The ways to go on after a failure.
const (
	// Never: the first failure aborts the run.
	Never Continue = "never"
	// Dependents: what waits on the failed task is skipped, all else goes on.
	Dependents Continue = "dependencies-successful"
	// Always: also what waits on the failed task runs, and is not saved.
	Always Continue = "always"
)

// ParseContinue reads the value of --continue.
func ParseContinue(s string) (Continue, error) {
	switch c := Continue(s); c {
	case Never, Dependents, Always:
		return c, nil
	}
	return "", errs.New(errs.InvalidArgument, "continue mode %q is not known: use never, dependencies-successful or always", s)
}

// Params are what a run is made of.
type Params struct {
	// Tasks in an order in which each comes after its dependencies.
	Tasks []*run.Task
	// Expected is how long each task took by its history; 0 is unknown. Nil when
	// nothing is known.
	Expected []time.Duration
	// Retries is how many attempts a task gets beyond the first. Nil: none.
	Retries []int
	// Additive tasks add to the outputs of those before them: their hits are
	// restored after these. Nil: none.
	Additive []bool
	Continue Continue
	// Executions, Restores and Derivations bound what happens at once; each at
	// least 1. Persistent tasks are not counted.
	Executions, Restores, Derivations int
}

func (p Params) check() (deps [][]int32, err error) {
	if p.Executions < 1 || p.Restores < 1 || p.Derivations < 1 {
		return nil, errs.New(errs.InvalidArgument, "a run needs room for at least one task: its concurrency is %d", p.Executions)
	}
	if _, err := ParseContinue(string(p.Continue)); err != nil {
		return nil, err
	}
	index := make(map[id.Task]int32, len(p.Tasks))
	deps = make([][]int32, len(p.Tasks))
	for i, t := range p.Tasks {
		if _, twice := index[t.ID]; twice {
			return nil, errs.New(errs.Internal, "task %s is in the run twice", t.ID)
		}
		for _, d := range t.Deps {
			at, known := index[d]
			if !known {
				return nil, errs.New(errs.Internal, "task %s waits on %s, which does not come before it", t.ID, d)
			}
			if up := p.Tasks[at]; up.Persistent && !up.Excluded && !up.Command.Empty() {
				return nil, errs.New(errs.InvalidArgument, "task %s waits on %s, which is persistent and never done: remove it from dependsOn, or name it under \"with\"", t.ID, d)
			}
			deps[i] = append(deps[i], at)
		}
		index[t.ID] = int32(i)
	}
	return deps, nil
}
