package key

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"brood/internal/run"
	"brood/internal/run/cache/files"
)

// Changed returns the input of a task that is no longer as its key has it, ""
// when all are: to be asked after the task ran and before its result is saved.
// A file that came since counts too, and one that was written since began,
// though it holds again what it held, or below the project's folder is gone
// again; a zero began asks for contents alone. What git tracks among the outputs
// may be written as it was: the task and those before it write there. Another
// content counts there too, since no result holds what git tracks, and a hit
// would not bring it. The environment cannot change.
func (k *Keyer) Changed(ctx context.Context, t *run.Task, began time.Time) (string, error) {
	return k.changed(ctx, t, nil, began)
}

// ChangedUnder is Changed for a task that by works with. What by itself and the
// tasks of the project make is no source there.
func (k *Keyer) ChangedUnder(ctx context.Context, t, by *run.Task, began time.Time) (string, error) {
	return k.changed(ctx, t, by, began)
}

func (k *Keyer) changed(ctx context.Context, t, by *run.Task, began time.Time) (string, error) {
	in, err := k.inputsOf(ctx, t)
	if err != nil {
		return "", err
	}
	sel, _, err := k.selectionOf(t)
	if err == nil {
		err = k.addOutputs(t, &sel)
	}
	if err != nil {
		return "", err
	}
	own, wide := filesOf(in.all), sel
	if err := k.addMade(t, by, &wide); err != nil {
		return "", err
	}
	if by != nil {
		sel = wide
		own = slices.DeleteFunc(own, func(f files.File) bool { return !f.Tracked && sel.made(f.Path) })
	}
	// What another task of the project makes is an input of this one when it lies
	// there, and may be made again as it was.
	during := files.During{Began: began, Made: wide.made}
	for _, list := range [][]files.File{own, filesOf(k.guard), k.lock.files()} {
		name, err := k.cfg.Files.Changed(ctx, list, during)
		if name != "" || err != nil {
			return name, err
		}
	}
	if name, err := k.appeared(t, sel, in.through, began); name != "" || err != nil {
		return name, err
	}
	now, err := k.cfg.Files.Named(ctx, sel.set)
	if err != nil {
		return "", err
	}
	known := map[string]bool{}
	for _, f := range in.all {
		known[f.name] = true
	}
	for _, f := range now {
		if !known[f.Path] && !sel.made(f.Path) {
			return f.Path, nil
		}
	}
	return "", nil
}

// addMade adds to a selection what the tasks of t's project make, and by.
func (k *Keyer) addMade(t, by *run.Task, sel *selection) error {
	var all []*run.Task
	if by != nil {
		all = append(all, by)
	}
	if k.cfg.Beside != nil {
		all = append(all, k.cfg.Beside(t.Project)...)
	}
	sel.outputs = slices.Clone(sel.outputs)
	for _, p := range all {
		if len(p.Outputs) == 0 {
			continue
		}
		o, err := k.outputs(p)
		if err != nil {
			return err
		}
		sel.outputs = append(sel.outputs, o)
	}
	return nil
}

// Grown names a file that came since the snapshot and that would be part of
// every key, "" when there is none, or when to look would take longer than most.
func (k *Keyer) Grown(t *run.Task, most time.Duration) (string, error) {
	sel, _, err := k.selectionOf(t)
	if err == nil {
		err = k.addOutputs(t, &sel)
	}
	if err != nil {
		return "", err
	}
	return k.grown.since(time.Now(), most, sel.made)
}

// addOutputs completes a selection that needed none so far.
func (k *Keyer) addOutputs(t *run.Task, sel *selection) error {
	if sel.outputs != nil {
		return nil
	}
	for _, p := range k.producers(t) {
		o, err := k.outputs(p)
		if err != nil {
			return err
		}
		sel.outputs = append(sel.outputs, o)
	}
	return nil
}

// appeared looks for new files where the task's inputs are.
// through are folders that links lead to, by the links.
func (k *Keyer) appeared(t *run.Task, sel selection, through map[string]string, began time.Time) (string, error) {
	skip := func(name string, folder bool) bool {
		switch {
		case sel.made(name):
			return true
		case sel.defaults:
			return sel.set.Excluded(name)
		case folder:
			return !sel.set.Reaches(name)
		}
		return !sel.set.Match(name)
	}
	search := files.Search{Dir: t.Dir, Skip: skip, Top: t.Dir, Began: began}
	if sel.defaults {
		if name, err := k.cfg.Files.Appeared(search); name != "" || err != nil {
			return name, err
		}
	}
	for _, base := range sel.set.Bases() {
		if k.cfg.Files.BeyondLink(base) {
			continue // below
		}
		search.Dir = base
		if name, err := k.cfg.Files.Appeared(search); name != "" || err != nil {
			return name, err
		}
	}
	for link, dir := range through {
		search.Dir, search.Skip = dir, func(name string, folder bool) bool {
			return sel.made(name) || skip(path.Join(link, strings.TrimPrefix(name, dir)), folder)
		}
		if name, err := k.cfg.Files.Appeared(search); name != "" || err != nil {
			return name, err
		}
	}
	return "", nil
}
