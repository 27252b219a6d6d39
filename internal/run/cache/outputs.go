package cache

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"brood/internal/base/errs"
	"brood/internal/run"
	"brood/internal/run/cache/files"
	"brood/internal/run/cache/glob"
	"brood/internal/run/cache/stamp"
)

// found is something that lies under a task's outputs.
type found struct {
	path string
	stat stamp.Stat
}

// outputs are what lies under a task's outputs, each list sorted by path.
type outputs struct {
	files, links, dirs []found
	other              []string // what cannot be stored: sockets, devices
}

// scan lists what lies under the outputs of a task and is its to store and to
// remove.
func (c *Cache) scan(t *run.Task) (*outputs, error) {
	set, err := glob.New(t.Dir, t.Outputs)
	if err != nil {
		return nil, err
	}
	w := walker{c: c, task: t, set: set, out: &outputs{}}
	for _, base := range set.Bases() {
		if err := w.base(base); err != nil {
			return nil, err
		}
	}
	return w.out, nil
}

type walker struct {
	c    *Cache
	task *run.Task
	set  *glob.Set
	out  *outputs
}

// base begins at a folder or file that the globs name. A way there that leads
// out of the workspace is none.
func (w *walker) base(name string) error {
	at := name
	if at == "" {
		at = "."
	}
	if _, err := w.c.root.Lstat(at); err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) || isNotDir(err) {
			return nil
		}
		return errs.New(errs.FailedPrecondition, "outputs of %s: %w", w.task.ID, err)
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.EqualFold(part, ".git") {
			return nil
		}
	}
	return w.visit(name)
}

func (w *walker) visit(name string) error {
	st, err := stamp.Of(filepath.Join(w.c.cfg.Root, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it went while we looked
	}
	if err != nil {
		return err
	}
	mine := name != "" && w.set.Match(name)
	switch {
	case st.Dir():
		if mine && !w.c.nested[name] && name != project(w.task) {
			w.out.dirs = append(w.out.dirs, found{name, st})
		}
		return w.folder(name)
	case !mine || w.c.cfg.Tracked(name):
	case st.Regular():
		w.out.files = append(w.out.files, found{name, st})
	case st.Link():
		w.out.links = append(w.out.links, found{name, st})
	default:
		w.out.other = append(w.out.other, name)
	}
	return nil
}

func (w *walker) folder(name string) error {
	entries, err := os.ReadDir(filepath.Join(w.c.cfg.Root, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errs.New(errs.FailedPrecondition, "outputs of %s: %w", w.task.ID, err)
	}
	for _, e := range entries {
		sub := path.Join(name, e.Name())
		if e.IsDir() && w.foreign(name, sub, e.Name()) {
			continue
		}
		if err := w.visit(sub); err != nil {
			return err
		}
	}
	return nil
}

// foreign says that a folder is not to be entered.
func (w *walker) foreign(parent, name, base string) bool {
	switch {
	case strings.EqualFold(base, ".git"), name == files.Private:
		return true
	case base == "node_modules" && (parent == project(w.task) || parent == ""):
		return true
	case w.c.nested[name]:
		return true
	}
	return !w.set.Match(name) && !w.set.Reaches(name)
}

// paths returns the paths of a list.
func paths(list []found) []string {
	all := make([]string, len(list))
	for i, f := range list {
		all[i] = f.path
	}
	return all
}

// find returns the item at path.
func find(list []found, name string) (found, bool) {
	i, ok := slices.BinarySearchFunc(list, name, func(f found, name string) int { return strings.Compare(f.path, name) })
	if !ok {
		return found{}, false
	}
	return list[i], true
}

// sort puts the lists in order of their paths: a walk goes by names, in which
// "a.x" comes before "a/x" and as paths after.
func (o *outputs) sort() {
	for _, l := range [][]found{o.files, o.links, o.dirs} {
		slices.SortFunc(l, func(a, b found) int { return strings.Compare(a.path, b.path) })
	}
}
