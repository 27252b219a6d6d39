package graph

import (
	"path"
	"strings"

	"brood/internal/base/errs"
)

// filter is one --filter taken apart:
//
//	name  name*  ./dir  {dir}  [ref]  name{dir}[ref]
//
// with "..." behind for dependencies, in front for dependents, "^" beside it
// for all but what matched, and "!" in front of all to take away.
type filter struct {
	raw     string
	exclude bool
	// name is a name with * as wildcard; dir a glob of folders relative to the
	// root or to where the user is; from and to are what git compares.
	name string
	dir  string
	git  *gitRange
	// dependencies and dependents add the projects that the matched ones need,
	// and those that need them; others leaves the matched ones out.
	dependencies, dependents, others bool
	// through matches projects that depend on a changed one: name...[ref].
	through bool
}

// gitRange are commits to compare.
type gitRange struct {
	from, to string // to is empty for the working tree
	// forked compares with where to left from.
	forked bool
	// dirty adds what is not committed to a range that ends at a commit.
	dirty bool
	// lenient takes an unknown commit as "everything changed".
	lenient bool
}

// parseFilter reads a filter.
func parseFilter(raw string) (filter, error) {
	f := filter{raw: raw}
	rest, not := strings.CutPrefix(raw, "!")
	f.exclude = not
	if cut, ok := strings.CutSuffix(rest, "..."); ok {
		f.dependencies = true
		rest, f.others = strings.CutSuffix(cut, "^")
	}
	if cut, ok := strings.CutPrefix(rest, "..."); ok {
		f.dependents = true
		var others bool
		rest, others = strings.CutPrefix(cut, "^")
		f.others = f.others || others
	}
	if rest == "." || rest == ".." || strings.HasPrefix(rest, "./") || strings.HasPrefix(rest, "../") {
		f.dir, f.others = path.Clean(rest), false
		return f, nil
	}
	return f, f.parts(rest)
}

// parts reads name{dir}[ref], each of which may be missing.
func (f *filter) parts(rest string) error {
	if at := strings.IndexByte(rest, '['); at >= 0 {
		commits, ok := strings.CutSuffix(rest[at+1:], "]")
		if !ok || strings.ContainsAny(commits, "[]") {
			return f.wrong("[ref] comes last and is closed")
		}
		rest = rest[:at]
		rest, f.through = strings.CutSuffix(rest, "...")
		if err := f.commits(commits); err != nil {
			return err
		}
	}
	if at := strings.IndexByte(rest, '{'); at >= 0 {
		dir, ok := strings.CutSuffix(rest[at+1:], "}")
		if !ok || dir == "" || strings.ContainsAny(dir, "{}") {
			return f.wrong("{folder} holds a folder and comes behind the name")
		}
		rest, f.dir = rest[:at], path.Clean(dir)
	}
	f.name = rest
	switch {
	case strings.ContainsAny(rest, "[]{}"):
		return f.wrong("names have no brackets")
	case f.through && f.name == "" && f.dir == "":
		return f.wrong("...[ref] needs a name or a {folder} before it; for the dependents of what changed write ...[ref] alone")
	}
	return nil
}

func (f *filter) commits(text string) error {
	from, to, ranged := strings.Cut(text, "...")
	if from == "" || ranged && to == "" {
		return f.wrong("[ref] names a commit, [a...b] two")
	}
	if strings.HasPrefix(from, "-") || strings.HasPrefix(to, "-") {
		return f.wrong("a commit does not begin with a dash")
	}
	f.git = &gitRange{from: from, to: to, forked: ranged}
	return nil
}

func (f *filter) wrong(why string) error {
	return errs.New(errs.InvalidArgument, "filter %q cannot be read: %s", f.raw, why)
}

// matchName compares a name with a pattern in which * is any run of characters.
func matchName(pattern, name string) bool {
	head, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, head)
	if !ok {
		return false
	}
	for {
		var part string
		part, rest, wild = strings.Cut(rest, "*")
		if !wild {
			return strings.HasSuffix(name, part)
		}
		at := strings.Index(name, part)
		if at < 0 {
			return false
		}
		name = name[at+len(part):]
	}
}
