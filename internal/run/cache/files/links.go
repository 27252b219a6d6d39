package files

import (
	"context"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brood/internal/base/errs"
	"brood/internal/run/cache/stamp"
)

// Linked is a file under the name that a link to a folder gives it.
type Linked struct {
	Name string
	File File
	To   *File // where File leads, when it is a link to a file
}

// Target is what a link leads to inside the workspace; what lies outside is
// nobody's input.
type Target struct {
	To    *File    // a file, or
	Dir   string   // a folder, and
	Files []Linked // what is in it, but for what git ignores
}

// linkedMost bounds what one link leads to; links may lead in circles.
const linkedMost = 100_000

// targets are those that were asked for.
type targets struct {
	mu    sync.Mutex
	known map[string]*Target
}

// Follow finds out where a link leads. A file counts also where git ignores it.
// The Target is shared.
func (s *Snapshot) Follow(ctx context.Context, link File) (*Target, error) {
	s.links.mu.Lock()
	defer s.links.mu.Unlock()
	if t := s.links.known[link.Path]; t != nil {
		return t, nil
	}
	t, err := s.follow(ctx, link, nil)
	if err != nil {
		return nil, err
	}
	if s.links.known == nil {
		s.links.known = map[string]*Target{}
	}
	s.links.known[link.Path] = t
	return t, nil
}

// follow is Follow within the folders that links led to before.
func (s *Snapshot) follow(ctx context.Context, link File, within []string) (*Target, error) {
	t := &Target{}
	to, err := filepath.EvalSymlinks(s.abs(link.Path))
	if err != nil {
		return t, nil //nolint:nilerr // it leads nowhere
	}
	name, inside := strings.CutPrefix(to, strings.TrimSuffix(s.root, "/")+"/")
	if to != s.root && !inside || slices.ContainsFunc(strings.Split(name, "/"), never) {
		return t, nil
	}
	if to == s.root {
		name = "."
	}
	if f, known := s.Find(name); known {
		t.To = &f
		return t, nil
	}
	st, err := stamp.Of(to)
	switch {
	case err != nil:
		return t, nil //nolint:nilerr // it has just gone
	case !st.Dir():
		t.To, err = s.ignoredFile(ctx, name, st)
		return t, err
	case slices.Contains(within, name):
		return t, nil
	}
	t.Dir = name
	within = append(slices.Clone(within), name)
	for _, f := range s.Under(name) {
		l := Linked{Name: path.Join(link.Path, strings.TrimPrefix(strings.TrimPrefix(f.Path, name), "/")), File: f}
		if name == "." {
			l.Name = path.Join(link.Path, f.Path)
		}
		if f.Mode == Link {
			behind, err := s.follow(ctx, f, within)
			if err != nil {
				return nil, err
			}
			l.To = behind.To
			for _, b := range behind.Files {
				b.Name = l.Name + strings.TrimPrefix(b.Name, f.Path)
				t.Files = append(t.Files, b)
			}
		}
		if t.Files = append(t.Files, l); len(t.Files) > linkedMost {
			return nil, errs.New(errs.InvalidArgument, "the link %s leads to more than %d files: let it lead to fewer, or take it out of the inputs", link.Path, linkedMost)
		}
	}
	return t, nil
}

// BeyondLink says that the way to name leads through a link, where git answers
// nothing.
func (s *Snapshot) BeyondLink(name string) bool {
	for up := path.Dir(name); up != "." && up != "/"; up = path.Dir(up) {
		if f, known := s.Find(up); known && f.Mode == Link {
			return true
		}
	}
	return false
}

// ignoredFile is a file that a link leads to and git ignores.
func (s *Snapshot) ignoredFile(ctx context.Context, name string, st stamp.Stat) (*File, error) {
	if modeOf(st) == "" {
		return nil, nil
	}
	found := []File{{Path: name, Mode: modeOf(st), stat: st, settled: st.Settled(time.Now()), repo: -1}}
	return &found[0], s.hash(ctx, found, []int{0})
}
