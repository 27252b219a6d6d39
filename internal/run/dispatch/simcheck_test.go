package dispatch_test

import (
	"fmt"

	"brood/internal/run"
	"brood/internal/run/dispatch"
)

func (w *world) derive(e dispatch.Derive) error {
	if err := w.fresh(e.Task); err != nil {
		return err
	}
	if w.persistent(e.Task) {
		return fmt.Errorf("a persistent task needs no key")
	}
	w.deriving[e.Task] = true
	if len(w.deriving) > w.p.Derivations {
		return fmt.Errorf("%d keys at once, %d are allowed", len(w.deriving), w.p.Derivations)
	}
	for _, d := range w.deps(e.Task) {
		if t := w.p.Tasks[d]; !t.Cache && !t.Command.Empty() && !t.Excluded && w.ends[d].Status == "" {
			return fmt.Errorf("task %d writes unseen and is not done", d)
		}
	}
	a := dispatch.Miss
	switch t := w.p.Tasks[e.Task]; {
	case w.rand.IntN(20) == 0:
		a = dispatch.NoKey
	case t.Cache && !t.Command.Empty() && !t.Excluded && w.rand.IntN(2) == 0:
		a = dispatch.Hit
	}
	w.owe(dispatch.Keyed{Task: e.Task, Answer: a})
	return nil
}

func (w *world) restore(e dispatch.Restore) error {
	if err := w.fresh(e.Task); err != nil {
		return err
	}
	w.restores[e.Task] = true
	if len(w.restores) > w.p.Restores {
		return fmt.Errorf("%d restores at once, %d are allowed", len(w.restores), w.p.Restores)
	}
	if w.p.Additive[e.Task] {
		if err := w.depsFinal(e.Task, w.p.Continue == dispatch.Always); err != nil {
			return err
		}
	}
	w.owe(dispatch.Restored{Task: e.Task, OK: w.rand.IntN(6) > 0})
	return nil
}

func (w *world) run(e dispatch.Run) error {
	if err := w.fresh(e.Task); err != nil {
		return err
	}
	t := w.p.Tasks[e.Task]
	if t.Command.Empty() || t.Excluded {
		return fmt.Errorf("a group has nothing to run")
	}
	w.tries[e.Task]++
	if w.tries[e.Task] != e.Attempt || e.Attempt > 1+w.p.Retries[e.Task] || e.Attempt > 1 && t.Persistent {
		return fmt.Errorf("attempt %d of %d", w.tries[e.Task], 1+w.p.Retries[e.Task])
	}
	if e.Attempt > 1 {
		w.met["retry"]++
		if last := w.last[e.Task]; last != dispatch.Broke {
			return fmt.Errorf("is tried again after the ending %d", last)
		}
	}
	if err := w.depsFinal(e.Task, w.p.Continue == dispatch.Always); err != nil {
		return err
	}
	if err := w.mayRun(e); err != nil {
		return err
	}
	w.running[e.Task] = true
	if err := w.places(e.Task); err != nil {
		return err
	}
	w.saves[e.Task] = e.Save
	switch {
	case !t.Persistent && w.rand.IntN(4) == 0:
		w.owe(dispatch.Waits{Task: e.Task})
	case !t.Persistent || w.rand.IntN(3) == 0:
		w.endsSometime(e.Task)
	}
	if t.Persistent {
		w.met["persistent"]++
	}
	return nil
}

// endsSometime lets an attempt end at some time.
func (w *world) endsSometime(i int) {
	r := dispatch.Ran{Task: i, Ending: w.ending(), Unproven: w.rand.IntN(8) == 0}
	w.owe(r)
	w.last[i] = r.Ending
	w.proven[i] = w.saves[i] && !r.Unproven
}

func (w *world) goOn(e dispatch.Go) error {
	if !w.running[e.Task] || !w.asked[e.Task] || w.aborted {
		return fmt.Errorf("it did not ask for that")
	}
	delete(w.asked, e.Task)
	delete(w.aside, e.Task)
	w.met["went on"]++
	w.endsSometime(e.Task)
	return w.places(e.Task)
}

// mayRun checks that nothing unproven is saved.
func (w *world) mayRun(e dispatch.Run) error {
	t := w.p.Tasks[e.Task]
	if !t.Cache && e.Save {
		return fmt.Errorf("a task that is not cached is saved")
	}
	for _, d := range w.deps(e.Task) {
		end := w.ends[d]
		if end.Status == run.Failed {
			w.met["ran after failure"]++
		}
		if e.Save && (end.Status != run.Success && end.Status != run.Cached) {
			return fmt.Errorf("saved, though task %d %s", d, end.Status)
		}
		if e.Save && w.p.Tasks[d].Excluded {
			return fmt.Errorf("saved, though task %d was left out", d)
		}
		if dep := w.p.Tasks[d]; e.Save && dep.Cache && !dep.Command.Empty() && !w.proven[d] {
			return fmt.Errorf("saved, though the result of task %d is not proven", d)
		}
	}
	if t.Cache && !e.Save {
		w.met["unsaved"]++
	}
	return nil
}

func (w *world) places(i int) error {
	finite, alone := 0, false
	for r := range w.running {
		if !w.persistent(r) && !w.aside[r] {
			finite++
			alone = alone || w.p.Tasks[r].Interactive
		}
	}
	if finite > w.p.Executions {
		return fmt.Errorf("%d tasks at once, %d are allowed", finite, w.p.Executions)
	}
	if alone && finite > 1 && !w.persistent(i) {
		return fmt.Errorf("an interactive task does not run alone")
	}
	if alone {
		w.met["alone"]++
	}
	return nil
}

func (w *world) end(e dispatch.End) error {
	if was, twice := w.ends[e.Task]; twice {
		return fmt.Errorf("it has the outcome %s already", was.Status)
	}
	if !e.Status.Final() {
		return fmt.Errorf("not a final status")
	}
	if w.running[e.Task] || w.restores[e.Task] {
		return fmt.Errorf("it is not over")
	}
	if e.Attempts != w.tries[e.Task] {
		return fmt.Errorf("%d attempts were made", w.tries[e.Task])
	}
	w.ends[e.Task] = e
	w.met[string(e.Status)]++
	if (e.Status == run.Skipped) != (e.Cause >= 0) {
		return fmt.Errorf("a skipped task has a cause, and no other")
	}
	if e.Status == run.Skipped && !w.reaches(e.Task, e.Cause) {
		return fmt.Errorf("it does not wait on its cause")
	}
	if e.Status == run.Success || e.Status == run.Cached {
		return nil
	}
	w.aborted = w.aborted || e.Status == run.Failed && w.p.Continue == dispatch.Never
	return nil
}

// fresh checks that something may begin for a task.
func (w *world) fresh(i int) error {
	if w.aborted {
		return fmt.Errorf("something begins after the end of the run")
	}
	if w.ends[i].Status != "" || w.running[i] || w.restores[i] || w.deriving[i] {
		return fmt.Errorf("it is busy or over")
	}
	return nil
}

func (w *world) depsFinal(i int, failed bool) error {
	for _, d := range w.deps(i) {
		switch s := w.ends[d].Status; {
		case s == "":
			return fmt.Errorf("task %d is not done", d)
		case s != run.Success && s != run.Cached && !failed:
			return fmt.Errorf("task %d is %s", d, s)
		}
	}
	return nil
}

func (w *world) deps(i int) []int {
	var all []int
	for _, d := range w.p.Tasks[i].Deps {
		all = append(all, w.index[d])
	}
	return all
}

func (w *world) reaches(i, to int) bool {
	for _, d := range w.deps(i) {
		if d == to || w.reaches(d, to) {
			return true
		}
	}
	return false
}

// final checks the books of a run that is over.
func (w *world) final() error {
	if len(w.ends) != len(w.p.Tasks) {
		return fmt.Errorf("%d of %d tasks have an outcome", len(w.ends), len(w.p.Tasks))
	}
	if len(w.running)+len(w.restores) > 0 {
		return fmt.Errorf("the run is done and tasks run")
	}
	for i, e := range w.ends {
		if e.Status == run.Aborted && !w.m.Aborted() {
			return fmt.Errorf("task %d is aborted in a run that was not", i)
		}
	}
	return nil
}
