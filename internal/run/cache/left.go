package cache

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"brood/internal/base/digest"
	"brood/internal/run"
	"brood/internal/run/cache/entry"
	"brood/internal/run/cache/stamp"
)

// left is how a task's outputs lay when this run was done with it: what those
// that wait on it work with.
type left struct {
	turns int64 // as in Cache.count
	files []leftFile
	links []entry.Link
	hit   *Hit // of a task that has others beside it
}

type leftFile struct {
	path   string
	stat   stamp.Stat
	digest digest.Digest
}

// leave notes how a result lies in the tree; now has its files in their order.
func (c *Cache) leave(t *run.Task, turns int64, e *entry.Entry, now []found) {
	if len(t.Outputs) == 0 {
		return
	}
	l := left{turns: turns}
	if e != nil && len(c.cfg.Beside(t.ID)) > 0 {
		l.hit = &Hit{c: c, task: t, entry: e}
	}
	if e != nil {
		l.links = e.Links
		l.files = make([]leftFile, len(e.Files))
		for i, f := range e.Files {
			l.files[i] = leftFile{path: f.Path, stat: now[i].stat, digest: f.Digest}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left[t.ID] = l
	if c.adds(t) {
		for _, f := range l.files {
			c.adders[f.path] = t.ID
		}
		for _, l := range l.links {
			c.adders[l.Path] = t.ID
		}
	}
}

// bringBack puts back what an attempt of a task took away from those beside it,
// as far as this run made or restored it: tools empty the folder that they write
// into.
func (c *Cache) bringBack(t *run.Task) (all error) {
	for _, of := range c.cfg.Beside(t.ID) {
		c.mu.Lock()
		l := c.left[of]
		c.mu.Unlock()
		if l.hit == nil || !slices.ContainsFunc(l.files, func(f leftFile) bool {
			_, err := c.root.Lstat(f.path)
			return errors.Is(err, fs.ErrNotExist)
		}) {
			continue
		}
		h := *l.hit
		h.leaveToOthers()
		_, err := h.place(context.Background()) // what is wiped is its own
		if err == nil {
			var now []found
			if _, now, err = h.matches(context.Background()); now != nil {
				c.leave(h.task, l.turns, h.entry, now)
			}
		}
		all = errors.Join(all, err)
	}
	return all
}

// addedTo says that a task added to another one's output in this run.
func (c *Cache) addedTo(path string, t *run.Task) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	by, ok := c.adders[path]
	return ok && by != t.ID
}

// Standing is what became of a task's outputs since this run was done with it.
type Standing struct {
	// Foreign says that another run wrote them, Changed which of them has another
	// content, "" for none. What was written and has the content that it had did
	// not change: some tools bring up to date what they work with.
	Foreign bool
	Changed string
}

// Stands says how a task's outputs lie now; without look only whether another
// run wrote them. What by adds to them, which works with them and owns what it
// adds, does not count. Of a task that this run did nothing for nothing is known,
// and so nothing changed.
func (c *Cache) Stands(t, by *run.Task, look bool) Standing {
	c.mu.Lock()
	l, ok := c.left[t.ID]
	c.mu.Unlock()
	if !ok {
		return Standing{}
	}
	if c.begun.others() && c.count(t) != l.turns {
		return Standing{Foreign: true}
	}
	if !look {
		return Standing{}
	}
	added := func(string) bool { return false }
	if by != nil && c.adds(by) {
		if set, err := globs(by); err == nil {
			added = set.Match
		}
	}
	for _, f := range l.files {
		now, err := stamp.Of(filepath.Join(c.cfg.Root, f.path))
		if err == nil && now == f.stat || c.addedTo(f.path, t) || added(f.path) {
			continue
		}
		want := entry.File{Path: f.path, Perm: f.stat.Perm(), Content: entry.Content{Digest: f.digest, Size: f.stat.Size}}
		if err != nil || !c.fileIs(now, want) {
			return Standing{Changed: f.path}
		}
	}
	for _, l := range l.links {
		if !c.linkIs(l) && !c.addedTo(l.Path, t) && !added(l.Path) {
			return Standing{Changed: l.Path}
		}
	}
	return Standing{}
}
