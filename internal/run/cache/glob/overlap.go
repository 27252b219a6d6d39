package glob

import (
	"slices"
	"strings"
)

// Overlap says that some path provably matches both sets. Globs with classes
// or braces prove nothing unless they are equal.
func Overlap(a, b *Set) bool {
	for _, p := range a.include {
		for _, q := range b.include {
			if meet(p, q) && !a.takesBack(q) && !b.takesBack(p) {
				return true
			}
		}
	}
	return false
}

// takesBack says that a "!" glob covers everything that p matches.
func (s *Set) takesBack(p pattern) bool {
	return slices.ContainsFunc(s.exclude, func(x pattern) bool {
		if x == p {
			return true
		}
		_, in := below(p.base, x.base)
		return in && (x.rest == "" || x.rest == "**" || x.rest == "**/*")
	})
}

func meet(p, q pattern) bool {
	_, in := below(p.base, q.base)
	_, above := below(q.base, p.base)
	if !in && !above {
		return false
	}
	if p.base == q.base && p.rest == q.rest {
		return true
	}
	return segments(parts(p), parts(q))
}

// parts lists the segments of a glob from the root. Segments without wildcard
// are marked, because names of folders may hold any character.
func parts(p pattern) []segment {
	var all []segment
	if p.base != "" {
		for _, s := range strings.Split(p.base, "/") {
			all = append(all, segment{text: s, plain: true})
		}
	}
	if p.rest == "" {
		return append(all, segment{text: "**"})
	}
	for _, s := range strings.Split(p.rest, "/") {
		all = append(all, segment{text: s, plain: !strings.ContainsAny(s, `*?[{\`)})
	}
	return all
}

type segment struct {
	text  string
	plain bool
}

func (s segment) deep() bool { return !s.plain && s.text == "**" }

// segments finds out whether one path matches both, by trying every way that
// "**" can stretch: a table of one row, as long as b.
func segments(a, b []segment) bool {
	row := make([]bool, len(b)+1)
	for i := len(a); i >= 0; i-- {
		next := slices.Clone(row)
		for j := len(b); j >= 0; j-- {
			switch {
			case i == len(a) && j == len(b):
				row[j] = true
			case i < len(a) && a[i].deep():
				row[j] = next[j] || j < len(b) && row[j+1]
			case j < len(b) && b[j].deep():
				row[j] = row[j+1] || i < len(a) && next[j]
			default:
				row[j] = i < len(a) && j < len(b) && next[j+1] && share(a[i], b[j])
			}
		}
	}
	return row[0]
}

// share says that one name provably matches both segments.
func share(a, b segment) bool {
	if a.plain && b.plain || a.text == b.text {
		return a.text == b.text
	}
	if !a.plain && strings.ContainsAny(a.text, `[{\`) || !b.plain && strings.ContainsAny(b.text, `[{\`) {
		return false
	}
	return stars(a, b)
}

// stars goes through both texts with a table, as segments does.
func stars(a, b segment) bool {
	row := make([]bool, len(b.text)+1)
	star := func(s segment, i int) bool { return !s.plain && i < len(s.text) && s.text[i] == '*' }
	one := func(s segment, i int) bool { return !s.plain && s.text[i] == '?' }
	for i := len(a.text); i >= 0; i-- {
		next := slices.Clone(row)
		for j := len(b.text); j >= 0; j-- {
			moreA, moreB := i < len(a.text), j < len(b.text)
			switch {
			case !moreA && !moreB:
				row[j] = true
			case star(a, i):
				row[j] = next[j] || moreB && row[j+1]
			case star(b, j):
				row[j] = row[j+1] || moreA && next[j]
			default:
				row[j] = moreA && moreB && next[j+1] && (a.text[i] == b.text[j] || one(a, i) || one(b, j))
			}
		}
	}
	return row[0]
}
