package cache

import (
	"os"
	"path"
	"path/filepath"
	"strings"

	"brood/internal/base/errs"
	"brood/internal/run"
	"brood/internal/run/cache/entry"
	"brood/internal/run/cache/glob"
	"brood/internal/run/cache/stamp"
)

// refuseLinks says why outputs that are, or lie behind, links cannot be stored.
// A folder that is a link would come back without what is in it, and a link out
// of the workspace would let the writes of later tasks land there.
func (c *Cache) refuseLinks(t *run.Task, links []found) error {
	set, err := globs(t)
	if err != nil {
		return err
	}
	for _, base := range set.Bases() {
		for dir := base; dir != ""; dir, _ = up(dir) {
			if c.standsIn(dir) {
				return standIn(dir)
			}
		}
	}
	for _, l := range links {
		if outermost(set, l.path) && c.standsIn(l.path) {
			return standIn(l.path)
		}
	}
	return nil
}

func standIn(name string) error {
	return errs.New(errs.Unsupported, "output %s is a link to a folder: its content is not the project's", name)
}

// outermost says that no folder around an output is one itself.
func outermost(set *glob.Set, name string) bool { return !set.Match(path.Dir(name)) }

// standsIn says that a link, to a folder or to nothing yet, is where a folder
// should be.
func (c *Cache) standsIn(name string) bool {
	file := filepath.Join(c.cfg.Root, name)
	if st, err := stamp.Of(file); err != nil || !st.Link() {
		return false
	}
	to, err := os.Stat(file)
	return err != nil || to.IsDir()
}

// staysInside says that a link is relative and leads to a place in the
// workspace, whatever other links there are: it goes up first and then down.
func staysInside(l entry.Link) bool {
	if path.IsAbs(l.Target) {
		return false
	}
	depth, down := strings.Count(l.Path, "/"), false
	for part := range strings.SplitSeq(l.Target, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; down || depth < 0 {
				return false
			}
		default:
			down = true
		}
	}
	return true
}

// placeable says that the links of an entry are such as a save stores.
func (c *Cache) placeable(t *run.Task, e *entry.Entry) bool {
	if len(e.Links) == 0 {
		return true
	}
	set, err := globs(t)
	if err != nil {
		return false
	}
	for _, l := range e.Links {
		if !staysInside(l) || outermost(set, l.Path) && !c.leadsToFile(e, l) {
			return false
		}
	}
	return true
}

// leadsToFile says that a link of an entry would lead to a file: one of the
// entry's, or one that is there.
func (c *Cache) leadsToFile(e *entry.Entry, l entry.Link) bool {
	to := path.Join(path.Dir(l.Path), l.Target)
	for _, f := range e.Files {
		if f.Path == to {
			return true
		}
	}
	for _, other := range e.Links {
		if other.Path == to && other.Path != l.Path {
			return true
		}
	}
	st, err := os.Stat(filepath.Join(c.cfg.Root, to))
	return err == nil && !st.IsDir()
}
