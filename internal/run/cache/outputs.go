package cache

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

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
	// shared folders hold something that is not the task's: they stay.
	shared bool
}

// outputs are what lies under a task's outputs, each list sorted by path.
type outputs struct {
	files, links, dirs []found
	other              []string // what cannot be stored: sockets, devices
	repos              []string // repositories below the outputs, which nobody touches
	projects           []string // other projects that the globs reach into
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
	there, ok := beneath(w.c.folder, at)
	if !ok {
		var err error
		if there, err = w.follow(at); err != nil {
			return err
		}
	}
	if !there {
		return nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if isGit(part) {
			return nil
		}
	}
	_, err := w.visit(name)
	return err
}

// follow is beneath where the system does not say.
func (w *walker) follow(at string) (there bool, err error) {
	_, err = w.c.root.Lstat(at)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrInvalid), errors.Is(err, syscall.ENOTDIR):
		return false, nil
	}
	return false, errs.New(errs.FailedPrecondition, "outputs of %s: %w", w.task.ID, err)
}

// visit lists what is at name; other says that it is, or holds, something that
// is not the task's.
func (w *walker) visit(name string) (other bool, err error) {
	st, err := stamp.Of(filepath.Join(w.c.cfg.Root, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // it went while we looked
	}
	if err != nil {
		return false, err
	}
	mine := name != "" && w.set.Match(name)
	switch {
	case st.Dir():
		at := len(w.out.dirs)
		listed := mine && !w.c.nested[name] && name != project(w.task)
		if listed {
			w.out.dirs = append(w.out.dirs, found{path: name, stat: st})
		}
		other, err = w.folder(name)
		if listed {
			w.out.dirs[at].shared = other
		}
		return other || !listed, err
	case !mine || w.c.cfg.Tracked(name):
		return true, nil
	case st.Regular():
		w.out.files = append(w.out.files, found{path: name, stat: st})
	case st.Link():
		w.out.links = append(w.out.links, found{path: name, stat: st})
	default:
		w.out.other = append(w.out.other, name)
	}
	return false, nil
}

func (w *walker) folder(name string) (other bool, err error) {
	entries, err := os.ReadDir(filepath.Join(w.c.cfg.Root, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, errs.New(errs.FailedPrecondition, "outputs of %s: %w", w.task.ID, err)
	}
	for _, e := range entries {
		sub := path.Join(name, e.Name())
		if e.IsDir() && w.foreign(name, sub, e.Name()) {
			if other = true; isGit(e.Name()) && w.set.Match(name) && name != project(w.task) {
				w.out.repos = append(w.out.repos, sub)
			} else if w.c.nested[sub] && (w.set.Match(sub) || w.set.Reaches(sub)) {
				w.out.projects = append(w.out.projects, sub)
			}
			continue
		}
		theirs, err := w.visit(sub)
		if err != nil {
			return false, err
		}
		other = other || theirs
	}
	return other, nil
}

// foreign says that a folder is not to be entered.
func (w *walker) foreign(parent, name, base string) bool {
	switch {
	case isGit(base), name == files.Private:
		return true
	case base == "node_modules" && (parent == project(w.task) || parent == ""):
		return true
	case w.c.nested[name]:
		return true
	}
	return !w.set.Match(name) && !w.set.Reaches(name)
}

// wroteInto names a file that a task wrote as an output in a folder of another
// project since it began, "" when there is none.
func (c *Cache) wroteInto(dir string, set *glob.Set, began time.Time) (name string, err error) {
	since := began.Add(-stamp.Granule).UnixNano()
	err = filepath.WalkDir(filepath.Join(c.cfg.Root, dir), func(p string, d fs.DirEntry, err error) error {
		rel, e := filepath.Rel(c.cfg.Root, p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || e != nil:
			return errors.Join(err, e)
		case d.IsDir() && (isGit(d.Name()) || d.Name() == "node_modules" || !set.Match(rel) && !set.Reaches(rel)):
			return fs.SkipDir
		case d.IsDir() || !set.Match(rel) || c.cfg.Tracked(rel):
			return nil
		}
		if st, err := stamp.Of(p); err == nil && max(st.CTime, st.MTime) >= since {
			name = rel
			return fs.SkipAll
		}
		return nil
	})
	return name, err
}

func isGit(name string) bool { return strings.EqualFold(name, ".git") }

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
