package cache

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"brood/internal/base/digest"
	"brood/internal/run/cache/entry"
	"brood/internal/run/cache/stamp"
)

// matches says that the tree is what a restore would make of it; now has the
// entry's files as they lie there.
func (h *Hit) matches(ctx context.Context) (same bool, now []found, err error) {
	o, err := h.present()
	if err != nil {
		return false, nil, err
	}
	e := h.entry
	if len(o.files) != len(e.Files) || len(o.links) != len(e.Links) || len(o.other) > 0 || !sameDirs(o.dirs, e.Dirs) {
		return false, nil, nil
	}
	for i, l := range e.Links {
		if o.links[i].path != l.Path || !h.c.linkIs(l) {
			return false, nil, nil
		}
	}
	for i, f := range e.Files {
		if ctx.Err() != nil {
			return false, nil, context.Cause(ctx)
		}
		if o.files[i].path != f.Path || !h.c.fileIs(o.files[i].stat, f) {
			return false, nil, nil
		}
	}
	return true, o.files, nil
}

// sameDirs says that the folders are those of the entry. One that others use
// too may be there all the same.
func sameDirs(now []found, want []entry.Dir) bool {
	for _, d := range now {
		switch {
		case len(want) > 0 && want[0].Path == d.path && want[0].Perm == d.stat.Perm():
			want = want[1:]
		case !d.shared:
			return false
		}
	}
	return len(want) == 0
}

// present lists what lies under the outputs and is this task's: of one that owns
// what it adds that, of another what no such one did.
func (h *Hit) present() (*outputs, error) {
	o, err := h.c.scan(h.task)
	if err != nil {
		return nil, err
	}
	o.sort()
	if !h.c.adds(h.task) {
		other := func(f found) bool {
			owner := h.c.cfg.Stamps.Owner(f.path)
			return owner != "" && owner != string(h.task.ID)
		}
		h.forget(o, other)
		o.files, o.links = slices.DeleteFunc(o.files, other), slices.DeleteFunc(o.links, other)
		return o, nil
	}
	var want []string
	for _, f := range h.entry.Files {
		want = append(want, f.Path)
	}
	for _, l := range h.entry.Links {
		want = append(want, l.Path)
	}
	slices.Sort(want)
	foreign := func(f found) bool {
		return !has(want, f.path) && h.c.cfg.Stamps.Owner(f.path) != string(h.task.ID)
	}
	o.files, o.links = slices.DeleteFunc(o.files, foreign), slices.DeleteFunc(o.links, foreign)
	o.dirs = slices.DeleteFunc(o.dirs, func(d found) bool {
		return !slices.ContainsFunc(h.entry.Dirs, func(e entry.Dir) bool { return e.Path == d.path })
	})
	return o, nil
}

// forget drops the folders that are there for the files of other tasks only.
func (h *Hit) forget(o *outputs, other func(found) bool) {
	theirs := map[string]bool{}
	for _, list := range [][]found{o.files, o.links} {
		for _, f := range list {
			for dir := f.path; other(f) && dir != "."; {
				dir = path.Dir(dir)
				theirs[dir] = true
			}
		}
	}
	for _, d := range h.entry.Dirs {
		delete(theirs, d.Path)
	}
	o.dirs = slices.DeleteFunc(o.dirs, func(d found) bool { return theirs[d.path] })
}

func (c *Cache) linkIs(l entry.Link) bool {
	to, err := os.Readlink(filepath.Join(c.cfg.Root, l.Path))
	return err == nil && to == l.Target
}

// fileIs compares a file with its stored state, reading it only when no stamp
// tells its digest.
func (c *Cache) fileIs(st stamp.Stat, f entry.File) bool {
	if st.Size != f.Size || st.Perm() != f.Perm || !st.Regular() {
		return false
	}
	if d, ok := c.cfg.Stamps.Get(stamp.Digest, f.Path, st); ok {
		return d == string(f.Digest)
	}
	started := time.Now()
	r, err := os.Open(filepath.Join(c.cfg.Root, f.Path))
	if err != nil {
		return false
	}
	defer r.Close()
	d, _, err := digest.Read(r)
	if err != nil {
		return false
	}
	c.cfg.Stamps.Put(stamp.Digest, f.Path, st, string(d), started)
	return d == f.Digest
}
