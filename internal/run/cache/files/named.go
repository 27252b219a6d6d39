package files

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brood/internal/run/cache/glob"
	"brood/internal/run/cache/stamp"
)

// namedFiles are the ignored files that lie in folders which are not ignored.
// They are listed once, when the first task asks.
type namedFiles struct {
	once sync.Once
	all  []string
	err  error
}

// Named returns the ignored files that globs name expressly, such as ".env*":
// an ignored file is an input only so. A glob with "**" finds it only where its
// folder is not ignored. want must be a set's Named.
func (s *Snapshot) Named(ctx context.Context, want *glob.Set) ([]File, error) {
	if want.Empty() {
		return nil, nil
	}
	var names []string
	take := func(name string) {
		if want.Match(name) {
			if _, known := s.Find(name); !known {
				names = append(names, name)
			}
		}
	}
	if want.Deep() {
		s.named.once.Do(func() { s.named.all, s.named.err = s.ignoredFiles(ctx) })
		if s.named.err != nil {
			return nil, s.named.err
		}
		for _, name := range s.named.all {
			take(name)
		}
	} else {
		for _, base := range want.Bases() {
			s.look(base, want, 8, take)
		}
	}
	slices.Sort(names)
	var found []File
	now := time.Now()
	for _, name := range slices.Compact(names) {
		if st, err := stamp.Of(s.abs(name)); err == nil && modeOf(st) != "" {
			found = append(found, File{Path: name, Mode: modeOf(st), stat: st, settled: st.Settled(now), repo: -1})
		}
	}
	todo := make([]int, len(found))
	for i := range todo {
		todo[i] = i
	}
	return found, s.hash(ctx, found, todo)
}

// look takes what is at base and in it, down to depth levels.
func (s *Snapshot) look(base string, want *glob.Set, depth int, take func(string)) {
	st, err := stamp.Of(s.abs(base))
	if err != nil || depth == 0 {
		return
	}
	if !st.Dir() {
		take(base)
		return
	}
	entries, err := os.ReadDir(s.abs(base))
	if err != nil {
		return
	}
	for _, e := range entries {
		name := path.Join(base, e.Name())
		switch {
		case !e.IsDir():
			take(name)
		case !never(e.Name()) && want.Match(name):
			s.look(name, want, depth-1, take)
		case !never(e.Name()) && depth > 5:
			s.look(name, want, depth-1, take)
		}
	}
}

func (s *Snapshot) ignoredFiles(ctx context.Context) ([]string, error) {
	if !s.Git() {
		return nil, nil
	}
	out, err := git(ctx, s.root, nil, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(nulls(out), func(n string) bool {
		return strings.HasSuffix(n, "/") || slices.ContainsFunc(strings.Split(filepath.ToSlash(n), "/"), never)
	}), nil
}
