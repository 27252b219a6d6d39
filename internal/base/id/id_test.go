package id_test

import (
	"regexp"
	"strings"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/base/id"
)

var rule = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func FuzzParseName(f *testing.F) {
	for _, s := range []string{"", "a", "-a", "a-", "a-b", "A", "ä", "a_b", "a/b", "..", strings.Repeat("a", 63), strings.Repeat("a", 64), "a\nb", "0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := id.ParseName("sandbox", s)
		if ok := rule.MatchString(s) && !strings.Contains(s, "\n"); ok != (err == nil) {
			t.Fatalf("ParseName(%q) = %q, %v", s, n, err)
		}
		if err != nil && errs.CodeOf(err) != errs.InvalidArgument {
			t.Fatalf("code %v", errs.CodeOf(err))
		}
	})
}

func TestRandomIDsArePlainAndDiffer(t *testing.T) {
	a, b := id.NewSandbox(), id.NewSandbox()
	if a == b || !id.Plain(string(a)) || !id.Plain(string(id.NewBatch())) || !id.Plain(string(id.NewExec())) {
		t.Errorf("%q %q", a, b)
	}
	for _, bad := range []string{"", "-x", "a/b", "..", "A", strings.Repeat("a", 65)} {
		if id.Plain(bad) {
			t.Errorf("Plain(%q)", bad)
		}
	}
}
