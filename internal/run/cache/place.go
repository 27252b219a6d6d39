package cache

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/home"
	"brood/internal/run/cache/entry"
	"brood/internal/run/cache/stamp"
)

// place stages what is missing, wipes, and moves what was staged to its place.
func (h *Hit) place(ctx context.Context) (touched bool, err error) {
	c := h.c
	if err := h.allowed(); err != nil {
		return false, err
	}
	o, err := h.present()
	if err != nil {
		return false, err
	}
	var missing []entry.File
	keep := map[string]bool{}
	for _, f := range h.entry.Files {
		if now, ok := find(o.files, f.Path); ok && c.fileIs(now.stat, f) {
			keep[f.Path] = true
			continue
		}
		missing = append(missing, f)
	}
	if err := h.fetch(ctx, missing); err != nil {
		return false, err
	}
	st, err := c.openStage()
	if err != nil {
		return false, err
	}
	staged := make([]string, 0, len(missing))
	defer func() {
		if err != nil {
			st.discard(staged)
		}
	}()
	for _, f := range missing {
		name, err := c.stageFile(ctx, st, f)
		if name != "" {
			staged = append(staged, name)
		}
		if err != nil {
			return false, err
		}
	}
	if !c.adds(h.task) {
		if o, err = c.scan(h.task); err != nil { // what others added goes too
			return false, err
		}
		o.sort()
	}
	err = c.wipe(o, h.entry, keep)
	if err == nil {
		err = h.move(missing, staged, st)
	}
	if err != nil { // a part of a result would pass for one of the task that runs now
		err = errors.Join(err, c.Clean(h.task))
	}
	return true, err
}

// allowed refuses an entry with outputs that the task does not have.
func (h *Hit) allowed() error {
	set, err := globs(h.task)
	if err != nil {
		return err
	}
	check := func(name string) error {
		if !set.Match(name) || h.c.cfg.Tracked(name) {
			return errs.New(errs.DataLoss, "the stored output %.200q is none of its outputs", name)
		}
		return nil
	}
	for _, f := range h.entry.Files {
		if err := check(f.Path); err != nil {
			return err
		}
	}
	for _, l := range h.entry.Links {
		if err := check(l.Path); err != nil {
			return err
		}
	}
	for _, d := range h.entry.Dirs {
		if !set.Match(d.Path) {
			return errs.New(errs.DataLoss, "the stored output %.200q is none of its outputs", d.Path)
		}
	}
	return nil
}

// fetch brings what is not here from the shared cache.
func (h *Hit) fetch(ctx context.Context, list []entry.File) error {
	if h.c.shared == nil || !h.c.cfg.Shared.Read {
		return nil
	}
	var need []entry.Content
	seen := map[digest.Digest]bool{}
	for _, f := range list {
		if f.Inline == nil && f.Size > 0 && !seen[f.Digest] && !h.c.store.Has(f.Digest) {
			seen[f.Digest] = true
			need = append(need, f.Content)
		}
	}
	if len(need) == 0 {
		return nil
	}
	return h.c.shared.fetch(ctx, need, h.c.store)
}

// wipe removes what is not part of the entry: files and links first, then
// folders from the inside out, as far as they are empty.
func (c *Cache) wipe(o *outputs, e *entry.Entry, keep map[string]bool) error {
	links := make(map[string]string, len(e.Links))
	for _, l := range e.Links {
		links[l.Path] = l.Target
	}
	dirs := make(map[string]bool, len(e.Dirs))
	for _, d := range e.Dirs {
		dirs[d.Path] = true
	}
	replaced := make(map[string]bool, len(e.Files)) // by rename, which leaves no gap
	for _, f := range e.Files {
		replaced[f.Path] = true
	}
	for _, f := range o.files {
		if keep[f.path] || replaced[f.path] {
			continue
		}
		c.cfg.Stamps.Forget(f.path)
		if err := c.remove(f.path); err != nil {
			return err
		}
	}
	for _, l := range o.links {
		if to, ok := links[l.path]; ok && c.linkIs(entry.Link{Path: l.path, Target: to}) {
			continue
		}
		if err := c.remove(l.path); err != nil {
			return err
		}
	}
	for _, name := range o.other {
		if err := c.remove(name); err != nil {
			return err
		}
	}
	for i := len(o.dirs) - 1; i >= 0; i-- {
		if !dirs[o.dirs[i].path] {
			_ = c.root.Remove(o.dirs[i].path) // it may hold what is not ours
		}
	}
	return nil
}

// remove deletes a file, opening its folder for writing when it must.
func (c *Cache) remove(name string) error {
	err := c.root.Remove(name)
	if errors.Is(err, fs.ErrPermission) {
		if e := c.root.Chmod(path.Dir(name), 0o755); e == nil {
			err = c.root.Remove(name)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return home.DiskError(err, "remove the old output %s", name)
	}
	return nil
}

// move puts everything in its place.
func (h *Hit) move(list []entry.File, staged []string, st *stage) error {
	c, made := h.c, map[string]bool{}
	m := mover{stage: st}
	defer m.close()
	parent := func(name string) error {
		dir := path.Dir(name)
		if dir == "." || made[dir] {
			return nil
		}
		made[dir] = true
		return c.root.MkdirAll(dir, 0o755)
	}
	for _, d := range h.entry.Dirs {
		if err := c.root.MkdirAll(d.Path, 0o755); err != nil {
			return home.DiskError(err, "make the output folder %s", d.Path)
		}
		made[d.Path] = true
	}
	for i, f := range list {
		if err := parent(f.Path); err != nil {
			return home.DiskError(err, "make the folder of output %s", f.Path)
		}
		if err := m.move(staged[i], f.Path); err != nil {
			return home.DiskError(err, "place the output %s", f.Path)
		}
	}
	for _, l := range h.entry.Links {
		if c.linkIs(l) {
			continue
		}
		if err := parent(l.Path); err != nil {
			return home.DiskError(err, "make the folder of output %s", l.Path)
		}
		if err := c.root.Symlink(l.Target, l.Path); err != nil {
			return home.DiskError(err, "place the output %s", l.Path)
		}
	}
	return h.finish(list)
}

// finish sets the folders' permissions, from the inside out, and remembers
// what was placed.
func (h *Hit) finish(list []entry.File) error {
	c := h.c
	for i := len(h.entry.Dirs) - 1; i >= 0; i-- {
		d := h.entry.Dirs[i]
		if st, err := stamp.Of(filepath.Join(c.cfg.Root, d.Path)); err == nil && st.Perm() == d.Perm {
			continue
		}
		if err := c.root.Chmod(d.Path, fs.FileMode(d.Perm)); err != nil {
			return home.DiskError(err, "output folder %s", d.Path)
		}
	}
	owner := ""
	if c.adds(h.task) {
		owner = string(h.task.ID)
	}
	for _, f := range list {
		if st, err := stamp.Of(filepath.Join(c.cfg.Root, f.Path)); err == nil && st.Size == f.Size {
			c.cfg.Stamps.Force(stamp.Digest, f.Path, st, string(f.Digest))
		}
	}
	if owner != "" {
		for _, f := range h.entry.Files {
			c.cfg.Stamps.Own(f.Path, owner)
		}
		for _, l := range h.entry.Links {
			c.cfg.Stamps.Own(l.Path, owner)
		}
	}
	return nil
}

// stagedAge is how much older than now a placed file says it is: enough that
// any later write gives it another time, however coarse the clock, and little
// enough to be newer than the inputs.
const stagedAge = stamp.Granule

// stageFile writes a file into the stage. The name is set as soon as there is
// something to remove again.
func (c *Cache) stageFile(ctx context.Context, st *stage, f entry.File) (name string, err error) {
	name, w, err := st.create()
	if err != nil {
		return "", home.DiskError(err, "stage the output %s", f.Path)
	}
	s := &sparse{f: w}
	err = c.content(ctx, s, f.Content)
	if err == nil && s.end < f.Size {
		err = w.Truncate(f.Size)
	}
	if err == nil {
		err = w.Chmod(fs.FileMode(f.Perm))
	}
	if e := w.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = st.date(name, time.Now().Add(-stagedAge))
	}
	return name, home.DiskError(err, "stage the output %s", f.Path)
}

// sparse leaves holes where a file has long runs of zeros.
type sparse struct {
	f   *os.File
	at  int64
	end int64 // of what was written
}

// hole is the length of a run of zeros that is not written.
const hole = 64 << 10

var zeros [hole]byte

func (s *sparse) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), hole-int(s.at%hole))
		if !bytes.Equal(rest[:n], zeros[:n]) || n < hole {
			if _, err := s.f.WriteAt(rest[:n], s.at); err != nil {
				return 0, err
			}
			s.end = s.at + int64(n)
		}
		s.at, rest = s.at+int64(n), rest[n:]
	}
	return len(p), nil
}

func (s *sparse) restart() error {
	s.at, s.end = 0, 0
	return s.f.Truncate(0)
}

// stageName is the folder, below the root, in which outputs are staged.
func stageName(parts ...string) string {
	return strings.Join(append([]string{".brood", "stage"}, parts...), "/")
}
