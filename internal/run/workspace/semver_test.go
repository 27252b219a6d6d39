package workspace

import "testing"

// The cases follow npm's semver.
func TestRanges(t *testing.T) {
	for _, c := range []struct {
		want, have string
		allowed    bool
	}{
		{"^1.2.3", "1.9.0", true}, {"^1.2.3", "1.2.2", false}, {"^1.2.3", "2.0.0", false}, {"^0.2.3", "0.2.9", true}, {"^0.2.3", "0.3.0", false},
		{"^0.0.3", "0.0.3", true}, {"^0.0.3", "0.0.4", false}, {"^0", "0.9.9", true}, {"^0.0", "0.0.9", true}, {"^0.0", "0.1.0", false}, {"^1.x", "1.5.0", true},
		{"~1.2.3", "1.2.9", true}, {"~1.2.3", "1.3.0", false}, {"~1", "1.9.0", true}, {"~1", "2.0.0", false}, {"~> 1.2", "1.2.5", true},
		{"1.2", "1.2.7", true}, {"1.2", "1.3.0", false}, {"1", "1.7.0", true}, {"*", "7.0.0", true}, {"x", "7.0.0", true}, {"", "7.0.0", true}, {"1.*", "1.4.0", true},
		{">1.2", "1.2.9", false}, {">1.2", "1.3.0", true}, {"<=1", "1.9.9", true}, {"<=1", "2.0.0", false}, {"<1", "0.9.0", true}, {">=1.2", "1.2.0", true}, {"<*", "1.0.0", false},
		{"1.0.0 - 2.0.0", "2.0.0", true}, {"1.0.0 - 2", "2.9.0", true}, {"1.0.0 - 2", "3.0.0", false}, {"1 - 2.3", "2.3.9", true},
		{">=1.0.0 <2.0.0", "1.5.0", true}, {">= 1.0.0 < 2.0.0", "2.0.0", false}, {"1.0.0 || 2.0.0", "2.0.0", true}, {"^1 || ^3", "2.0.0", false},
		{"^1.0.0", "1.1.0-beta.1", false}, {"^1.1.0-beta.1", "1.1.0-beta.2", true}, {"^1.1.0-beta.1", "1.2.0-beta.2", false}, {"^1.1.0-beta.1", "1.2.0", true},
		{">=1.0.0-0", "1.0.0-alpha", true}, {"1.0.0-alpha.1", "1.0.0-alpha.1", true}, {">1.0.0-alpha.1", "1.0.0-alpha.10", true}, {"<1.0.0", "1.0.0-rc.1", false},
		{"v1.2.3", "1.2.3", true}, {"=1.2.3", "1.2.3+build", true},
	} {
		v, ok := parseVersion(c.have)
		r, is := parseConstraint(c.want)
		if !ok || !is || r.allows(v) != c.allowed {
			t.Errorf("%q and %q: %v (read %v, %v), want %v", c.want, c.have, r.allows(v), ok, is, c.allowed)
		}
	}
	for _, tag := range []string{"latest", "next", "workspace:*", "1.2.3.4", "http://x"} {
		if _, is := parseConstraint(tag); is {
			t.Errorf("%q is taken as a range", tag)
		}
	}
}
