package dispatch

import "brood/internal/run"

// Effect is something that the shell has to do.
type Effect interface{ effect() }

// Derive asks for the key of a task and for the cache's answer. All tasks that
// it depends on have answered theirs. Owed: one Keyed.
type Derive struct{ Task int }

// Restore asks for the outputs of a hit. Owed: one Restored.
type Restore struct{ Task int }

// Run asks for an attempt of a task, its number counted from 1. Owed: one Ran,
// also when the attempt is stopped.
type Run struct {
	Task    int
	Attempt int
	// Save says that a success may be saved: everything before it is proven.
	Save bool
}

// Go lets an attempt that is Ready go on.
type Go struct{ Task int }

// Stop asks that a running task's processes be stopped; its Ran is still owed.
type Stop struct{ Task int }

// End says what finally became of a task. It comes once for every task and
// owes nothing.
type End struct {
	Task     int
	Status   run.Status
	Attempts int
	// Cause is the task whose failure kept this one from running; -1: none.
	Cause int
}

func (Derive) effect()  {}
func (Restore) effect() {}
func (Run) effect()     {}
func (Go) effect()      {}
func (Stop) effect()    {}
func (End) effect()     {}
