package forks

import (
	"strings"
	"testing"
)

// A cut within a character does not make text bytes, and bytes stay whole.
func TestCollectedText(t *testing.T) {
	for _, c := range []struct{ name, in, text, raw string }{
		{name: "nothing"},
		{name: "text", in: "ä\n", text: "ä\n"},
		{name: "bytes", in: "a\xff", raw: "a\xff"},
		{name: "half a character, not cut", in: "a\xc3", raw: "a\xc3"},
		{name: "cut between characters", in: strings.Repeat("ä", maxCollected), text: strings.Repeat("ä", maxCollected/2)},
		{name: "cut within two bytes", in: "a" + strings.Repeat("ä", maxCollected), text: "a" + strings.Repeat("ä", maxCollected/2-1)},
		{name: "cut within four bytes", in: "a" + strings.Repeat("\U0001f423", maxCollected), text: "a" + strings.Repeat("\U0001f423", maxCollected/4-1)},
		{name: "bytes, cut", in: "\xff" + strings.Repeat("ä", maxCollected), raw: ("\xff" + strings.Repeat("ä", maxCollected))[:maxCollected]},
	} {
		var o collector
		_, _ = o.Write([]byte(c.in)) // never fails
		text, raw := o.text()
		if string(raw) != c.raw || (text == nil) != (c.raw != "") || text != nil && *text != c.text {
			t.Errorf("%s: text %v, %d bytes", c.name, text != nil, len(raw))
		}
	}
}
