package graph

import (
	"testing"

	"brood/internal/base/errs"
)

func FuzzFilter(f *testing.F) {
	for _, s := range []string{"a", "a...", "...a", "...^a", "a^...", "!a", "./x", "..", "{x}", "[main]", "[a...b]", "a{b}[c]", "a...[c]", "{}", "[]", "...[x]...", "*", "@s/*", "!...^a...", "[-x]", "a{b", "....", "{a}{b}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		p, err := parseFilter(raw)
		if err != nil && errs.CodeOf(err) != errs.InvalidArgument {
			t.Errorf("code %v: %v", errs.CodeOf(err), err)
		}
		if err == nil && p.git != nil && (p.git.from == "" || p.git.from[0] == '-' || p.git.to != "" && p.git.to[0] == '-') {
			t.Errorf("%q asks git for %+v", raw, p.git)
		}
	})
}

func FuzzMatchName(f *testing.F) {
	f.Add("a*b*c", "axbxc")
	f.Add("*", "")
	f.Add("@s/*", "@s/x")
	f.Add("a*a", "a")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if got, want := matchName(pattern, name), slow(pattern, name); got != want {
			t.Errorf("matchName(%q, %q) = %v, want %v", pattern, name, got, want)
		}
	})
}

// slow is matchName by trying everything, for short strings.
func slow(pattern, name string) bool {
	if len(pattern) > 12 || len(name) > 12 {
		return matchName(pattern, name)
	}
	if pattern == "" {
		return name == ""
	}
	if pattern[0] == '*' {
		for i := range len(name) + 1 {
			if slow(pattern[1:], name[i:]) {
				return true
			}
		}
		return false
	}
	return name != "" && pattern[0] == name[0] && slow(pattern[1:], name[1:])
}
