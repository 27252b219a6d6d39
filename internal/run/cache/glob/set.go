package glob

import (
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"brood/internal/base/errs"
)

// Set is a list of globs, ready to match.
type Set struct {
	include, exclude []pattern
}

// pattern is one glob. Its folder is kept apart, because names of folders may
// hold characters that mean something in a glob.
type pattern struct {
	dir  string // relative to the root, "" is the root
	glob string // relative to dir; "" is dir itself
	base string // the part of the path that has no wildcard, dir included
	rest string // what is left of glob behind base; "" when glob has no wildcard
}

// New compiles the globs of a project whose folder is dir; "." is the root.
// A glob that leaves the root is refused.
func New(dir string, globs []string) (*Set, error) {
	s := &Set{}
	for _, g := range globs {
		raw, negative := strings.CutPrefix(g, "!")
		p, err := compile(dir, raw)
		if err != nil {
			return nil, errs.New(errs.InvalidArgument, "glob %q of %s: %w", g, dir, err)
		}
		if negative {
			s.exclude = append(s.exclude, p)
		} else {
			s.include = append(s.include, p)
		}
	}
	return s, nil
}

func compile(dir, glob string) (pattern, error) {
	if rooted, ok := strings.CutPrefix(glob, "/"); ok {
		dir, glob = "", rooted
	}
	if dir == "." {
		dir = ""
	}
	glob = path.Clean(glob)
	for glob == ".." || strings.HasPrefix(glob, "../") {
		if dir == "" {
			return pattern{}, errs.New(errs.InvalidArgument, "it leaves the workspace: name files below its root")
		}
		if dir = path.Dir(dir); dir == "." {
			dir = ""
		}
		glob = strings.TrimPrefix(strings.TrimPrefix(glob, ".."), "/")
	}
	if glob == "." {
		glob = ""
	}
	if !doublestar.ValidatePattern(glob) {
		return pattern{}, errs.New(errs.InvalidArgument, "it is not a valid glob: close its brackets and braces")
	}
	p := pattern{dir: dir, glob: glob}
	p.base, p.rest = split(dir, glob)
	return p, nil
}

// split takes the leading segments without wildcards off glob.
func split(dir, glob string) (base, rest string) {
	base = dir
	for glob != "" {
		first, more, _ := strings.Cut(glob, "/")
		if strings.ContainsAny(first, `*?[{\`) {
			return base, glob
		}
		base, glob = path.Join(base, first), more
	}
	return base, ""
}

// below returns what p has behind dir; ok says that it is dir or lies in it.
func below(p, dir string) (rest string, ok bool) {
	if dir == "" {
		return p, true
	}
	if !strings.HasPrefix(p, dir) {
		return "", false
	}
	if len(p) == len(dir) {
		return "", true
	}
	return p[len(dir)+1:], p[len(dir)] == '/'
}

func (p pattern) match(name string) bool {
	rest, ok := below(name, p.base)
	if !ok {
		return false
	}
	if p.rest == "" || p.rest == "**" || p.rest == "**/*" && rest != "" {
		return true
	}
	if rest == "" {
		return false // the base itself; only "**" stands for nothing too
	}
	if doublestar.MatchUnvalidated(p.rest, rest) {
		return true
	}
	if strings.HasSuffix(p.rest, "*") {
		return false // below what it names nothing more is meant: "*" is not "**"
	}
	// A folder that is named stands for what is in it.
	for i := 1; i < len(rest); i++ {
		if rest[i] == '/' && doublestar.MatchUnvalidated(p.rest, rest[:i]) {
			return true
		}
	}
	return false
}

// Empty says that nothing can match.
func (s *Set) Empty() bool { return s == nil || len(s.include) == 0 }

// Match says whether the path is meant.
func (s *Set) Match(name string) bool {
	if s == nil {
		return false
	}
	hit := func(p pattern) bool { return p.match(name) }
	return slices.ContainsFunc(s.include, hit) && !slices.ContainsFunc(s.exclude, hit)
}

// Excluded says that a "!" glob takes the path back.
func (s *Set) Excluded(name string) bool {
	return s != nil && slices.ContainsFunc(s.exclude, func(p pattern) bool { return p.match(name) })
}

// Bases returns the folders and files to look into: everything that matches is
// one of them or lies below one. None lies in another.
func (s *Set) Bases() []string {
	if s == nil {
		return nil
	}
	all := make([]string, 0, len(s.include))
	for _, p := range s.include {
		all = append(all, p.base)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	var top []string
	for _, b := range all {
		if !slices.ContainsFunc(top, func(t string) bool { _, in := below(b, t); return in }) {
			top = append(top, b)
		}
	}
	return top
}

// Reaches says that something below dir could match, so that it is worth
// looking into it.
func (s *Set) Reaches(dir string) bool {
	if s == nil {
		return false
	}
	for _, p := range s.exclude {
		if p.rest == "" || p.rest == "**" || p.rest == "**/*" {
			if _, in := below(dir, p.base); in {
				return false
			}
		}
	}
	return slices.ContainsFunc(s.include, func(p pattern) bool {
		rest, in := below(dir, p.base)
		_, above := below(p.base, dir)
		return in && p.reaches(rest) || above
	})
}

// reaches says that something in the folder that lies at rest, behind the
// base, could match.
func (p pattern) reaches(rest string) bool {
	if rest == "" || p.rest == "" || strings.Contains(p.rest, "**") {
		return true
	}
	depth := strings.Count(p.rest, "/") + 1
	at := strings.Split(rest, "/")
	if len(at) < depth {
		return true
	}
	// As deep as the glob, only a folder that it names is meant with what is in it.
	return !strings.HasSuffix(p.rest, "*") && doublestar.MatchUnvalidated(p.rest, strings.Join(at[:depth], "/"))
}

// Named splits the globs. Those of the first set name files, by a name or an
// ending in their last segment, such as ".env*" or "src/**/*.ts"; those of the
// second take what there is, such as "src/**".
func (s *Set) Named() (named, all *Set) {
	if s == nil {
		return nil, nil
	}
	named, all = &Set{exclude: s.exclude}, &Set{exclude: s.exclude}
	for _, p := range s.include {
		if last := p.rest[strings.LastIndexByte(p.rest, '/')+1:]; last == "*" || last == "**" || last == "" && p.base == p.dir {
			all.include = append(all.include, p)
		} else {
			named.include = append(named.include, p)
		}
	}
	return named, all
}

// Only returns the set without the globs whose base keep does not want.
func (s *Set) Only(keep func(base string) bool) *Set {
	if s == nil {
		return nil
	}
	some := &Set{exclude: s.exclude}
	for _, p := range s.include {
		if keep(p.base) {
			some.include = append(some.include, p)
		}
	}
	return some
}
