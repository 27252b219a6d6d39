package glob_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"brood/internal/base/errs"
	"brood/internal/run/cache/glob"
)

func set(t testing.TB, dir string, globs ...string) *glob.Set {
	t.Helper()
	s, err := glob.New(dir, globs)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMatch(t *testing.T) {
	for _, tc := range []struct {
		dir, globs string
		yes, no    string
	}{
		{"a", "dist/**", "a/dist a/dist/x a/dist/y/z", "a a/distx b/dist/x dist/x a/x/dist/y"},
		{"a", "dist", "a/dist a/dist/x/y", "a/dist2"},
		{"a", "dist/", "a/dist a/dist/x/y", "a/dist2"},
		{"a", "./dist/*.js", "a/dist/x.js", "a/dist/x.css a/dist/y/x.js"},
		{"a", "*.js !x.js", "a/y.js", "a/x.js a/b/y.js"},
		{"a", "!dist/cache/** dist/**", "a/dist/x a/dist/caches", "a/dist/cache a/dist/cache/x"},
		{"a", "/shared/*.json", "shared/x.json", "a/shared/x.json shared/y/x.json"},
		{"a", "!/a/dist/x dist/**", "a/dist/y", "a/dist/x"},
		{"a/b", "../../tsconfig*.json ../c/**", "tsconfig.base.json a/c/x", "a/tsconfig.json a/b/x"},
		{".", "**", "a a/b/c", ""},
		{".", "**/.env.*local", ".env.local a/b/.env.dev.local", ".env a/.env.x"},
		{"a [x]*", "*.js", "a [x]*/y.js", "a x/y.js a [x]z/y.js"},
		{"a", "{dist,out}/**", "a/dist/x a/out/y", "a/lib/x"},
		{"a", "dist/*", "a/dist/x", "a/dist a/dist/x/y"},
		{"a", "src/**/*.ts", "a/src/x.ts a/src/y/z.ts", "a/src/x.js"},
		{"a", "**/*", "a/x a/y/z", "a b/x"},
		{"a", "d*st/x\xff*", "a/dist/x\xffy", "a/dist/y"},
	} {
		s := set(t, tc.dir, strings.Fields(tc.globs)...)
		if tc.dir == "a [x]*" {
			for _, y := range []string{"a [x]*/y.js"} {
				if !s.Match(y) {
					t.Errorf("%s %s does not match %q", tc.dir, tc.globs, y)
				}
			}
			continue
		}
		for _, y := range strings.Fields(tc.yes) {
			if !s.Match(y) {
				t.Errorf("%s: %s does not match %q", tc.dir, tc.globs, y)
			}
			for at := strings.LastIndexByte(y, '/'); at > 0; at = strings.LastIndexByte(y[:at], '/') {
				if !s.Reaches(y[:at]) {
					t.Errorf("%s: %s does not reach %q", tc.dir, tc.globs, y[:at])
				}
			}
		}
		for _, n := range strings.Fields(tc.no) {
			if s.Match(n) {
				t.Errorf("%s: %s matches %q", tc.dir, tc.globs, n)
			}
		}
	}
	for _, bad := range []string{"../../x", "[", "{a"} {
		if _, err := glob.New("a", []string{bad}); !errs.Is(err, errs.InvalidArgument) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestBases(t *testing.T) {
	got := strings.Join(set(t, "a", "dist/**", "dist/x/*.js", "*.md", "/b/lib/[x].js", "!gen/**").Bases(), " ")
	if got != "a b/lib" {
		t.Errorf("bases %q", got)
	}
	if got := strings.Join(set(t, "a", "dist/**", "dist-x/y").Bases(), " "); got != "a/dist a/dist-x/y" {
		t.Errorf("bases %q", got)
	}
}

func TestReachesNoFurtherThanNeeded(t *testing.T) {
	s := set(t, "a", "*.md", ".env*", "dist/**", "!dist/cache/**")
	for dir, want := range map[string]bool{"a": true, "": true, "a/src": false, "a/docs.md": true, "a/dist/x": true, "a/dist/cache": false, "a/.env.d": false, "b": false} {
		if s.Reaches(dir) != want {
			t.Errorf("reaches %q: %v", dir, !want)
		}
	}
}

func TestOverlap(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"dist/**", "dist/**", true},
		{"dist/**", "dist/types/*.d.ts", true},
		{"dist/*.js", "dist/*.css", false},
		{"dist/*.js", "dist/x*", true},
		{"dist/**", "build/**", false},
		{"dist/**", "distx/**", false},
		{"**/*.js", "a/b/c/*.j?", true},
		{"a/*/c", "a/b/d", false},
		{"dist", "dist/x/y", true},
		{".next/** !.next/cache/**", ".next/cache/**", false},
		{".next/** !.next/cache/**", ".next/cachex/**", true},
		{"{a,b}/**", "a/x", false}, // not proven
		{"{a,b}/**", "{a,b}/**", true},
		{"*a*a*a*a*a*a*a*a*a*a*a*b", "*a*a*a*a*a*a*a*a*a*a*a*c", false},
		{"**/**/**/**/**/**/**/x", "**/**/**/**/**/**/**/y", false},
		{"", "", false},
	} {
		a, b := set(t, "p", strings.Fields(tc.a)...), set(t, "p", strings.Fields(tc.b)...)
		if glob.Overlap(a, b) != tc.want || glob.Overlap(b, a) != tc.want {
			t.Errorf("%q and %q: overlap %v", tc.a, tc.b, !tc.want)
		}
	}
}

func FuzzGlob(f *testing.F) {
	for _, s := range [][3]string{{"a", "dist/**", "a/dist/x"}, {".", "!x", "x"}, {"a/b", "../*.{js,ts}", "a/x.ts"}, {"a", "[", "a/["}, {"a", "/..", ""}, {"", "\\*?", "*x"}} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, dir, pattern, name string) {
		s, err := glob.New(dir, []string{pattern})
		if err != nil || len(pattern) > 200 || len(name) > 200 {
			return
		}
		got := s.Match(name)
		for _, b := range s.Bases() {
			if b == name || b == "" || strings.HasPrefix(name, b+"/") {
				got = false // it lies where we would look
			}
		}
		if got {
			t.Errorf("%q in %q matches %q outside of %q", pattern, dir, name, s.Bases())
		}
		if !s.Empty() && !glob.Overlap(s, s) {
			t.Errorf("%q does not overlap itself", pattern)
		}
		if dir == "" && name != "" && utf8.ValidString(pattern) && doublestar.MatchUnvalidated(pattern, name) && !strings.ContainsAny(pattern, `./!\`) && !s.Match(name) {
			t.Errorf("%q does not match %q", pattern, name)
		}
	})
}
