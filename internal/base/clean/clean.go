package clean

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text writes a name or a value of others so that it stays on its line and is
// nothing but text: what steers a terminal or turns its writing round is seen
// as Go quotes it.
func Text(s string) string {
	at := strings.IndexFunc(s, steers)
	if at < 0 && utf8.ValidString(s) {
		return uncommanding(s)
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1, r < utf8.RuneSelf && steers(r):
			q := strconv.Quote(s[:1])
			b.WriteString(q[1 : len(q)-1])
		case steers(r):
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return uncommanding(b.String())
}

func steers(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)
}

// uncommanding breaks the form of a workflow command that GitHub finds anywhere
// in a line.
func uncommanding(s string) string { return strings.ReplaceAll(s, "##[", `#\x23[`) }

// Leading breaks the form that GitHub finds at the beginning of a line.
func Leading(s string) string {
	if text := strings.TrimLeftFunc(s, unicode.IsSpace); strings.HasPrefix(text, "::") {
		return s[:len(s)-len(text)] + `\x3a` + text[1:]
	}
	return s
}

// Message is a message of others as one line: joined errors have one each.
func Message(s string) string {
	var lines []string
	for line := range strings.SplitSeq(s, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, Text(line))
		}
	}
	return strings.Join(lines, "; ")
}
