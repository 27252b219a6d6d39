package clean_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"brood/internal/base/clean"
)

func TestText(t *testing.T) {
	for s, want := range map[string]string{
		"":                    "",
		"@acme/größe 漢":       "@acme/größe 漢",
		"a\x1b[2Jb\a\r\nc\td": `a\x1b[2Jb\a\r\nc\td`,
		"\u202egpj.exe\u2028": `\u202egpj.exe\u2028`,
		"\u009b31m":           `\u009b31m`,
		"a\xff":               `a\xff`,
		"##[error]":           `#\x23[error]`,
	} {
		if got := clean.Text(s); got != want {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	}
}

func TestMessage(t *testing.T) {
	if got := clean.Message("one\n\n two\a\n"); got != `one; two\a` {
		t.Errorf("%q", got)
	}
	if got := clean.Leading(" ::error::x"); got != ` \x3a:error::x` {
		t.Errorf("%q", got)
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\x1b\xff##[\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		for _, got := range []string{clean.Text(s), clean.Message(s)} {
			if !utf8.ValidString(got) || strings.ContainsAny(got, "\x1b\a\r\n\t\x7f\u009b\u202e\u2066\u2028") || strings.Contains(got, "##[") {
				t.Errorf("%q: %q", s, got)
			}
		}
	})
}
