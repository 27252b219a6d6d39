package files

import (
	"context"
	"errors"
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

// Named returns the ignored files that globs of a task name: by the name or the
// ending in a glob's last segment, such as ".env*" or "*.ts", or because the
// glob begins in a folder that is itself ignored. node_modules counts only
// where a glob begins in it. A glob that searches the whole workspace does not
// look into ignored folders.
func (s *Snapshot) Named(ctx context.Context, globs *glob.Set) ([]File, error) {
	named, rest := globs.Named()
	var fail error
	rest = rest.Only(func(base string) bool {
		in, err := s.hidden(base)
		fail = errors.Join(fail, err)
		return in
	})
	if fail != nil {
		return nil, fail
	}
	var names []string
	for _, want := range []*glob.Set{named, rest} {
		found, err := s.search(ctx, want)
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	slices.Sort(names)
	return s.describe(ctx, slices.Compact(names))
}

// hidden says that base exists and is ignored.
func (s *Snapshot) hidden(base string) (bool, error) {
	if base == "" || s.folder(base) || s.BeyondLink(base) {
		return false, nil
	}
	if _, known := s.Find(base); known {
		return false, nil
	}
	st, err := stamp.Of(s.abs(base))
	if err != nil {
		return false, nil //nolint:nilerr // there is none
	}
	if slices.ContainsFunc(strings.Split(base, "/"), never) {
		return true, nil
	}
	return s.check.ignored(base, st.Dir())
}

// search lists what matches and is not in the snapshot.
func (s *Snapshot) search(ctx context.Context, want *glob.Set) ([]string, error) {
	var names []string
	take := func(name string) {
		if want.Match(name) {
			if _, known := s.Find(name); !known {
				names = append(names, name)
			}
		}
	}
	for _, base := range want.Bases() {
		if base != "" {
			s.look(base, want, take)
			continue
		}
		s.named.once.Do(func() { s.named.all, s.named.err = s.ignoredFiles(ctx) })
		if s.named.err != nil {
			return nil, s.named.err
		}
		for _, name := range s.named.all {
			take(name)
		}
	}
	return names, nil
}

// look takes what is at base and below it.
func (s *Snapshot) look(base string, want *glob.Set, take func(string)) {
	st, err := stamp.Of(s.abs(base))
	if err != nil {
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
		case !never(e.Name()) && want.Reaches(name):
			s.look(name, want, take)
		}
	}
}

// describe reads the files of these names.
func (s *Snapshot) describe(ctx context.Context, names []string) ([]File, error) {
	var found []File
	now := time.Now()
	for _, name := range names {
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
