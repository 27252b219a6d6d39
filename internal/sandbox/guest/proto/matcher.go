package proto

import "bytes"

// Sizes of the resync pattern's two parts, in bytes.
const (
	MagicSize = 32
	NonceSize = 32
)

// Matcher finds a pattern in a byte stream that arrives in pieces
// (Knuth-Morris-Pratt). It never holds bytes back: it only says where a
// pattern ended.
type Matcher struct {
	pattern []byte
	fail    []int
	matched int
}

// NewMatcher returns a matcher for pattern, which must not be empty.
func NewMatcher(pattern []byte) *Matcher {
	m := &Matcher{pattern: bytes.Clone(pattern), fail: make([]int, len(pattern))}
	for i, k := 1, 0; i < len(pattern); i++ {
		for k > 0 && pattern[i] != pattern[k] {
			k = m.fail[k-1]
		}
		if pattern[i] == pattern[k] {
			k++
		}
		m.fail[i] = k
	}
	return m
}

// Feed looks at the next bytes of the stream. When a pattern ends among them
// it returns the index behind it and true, and the rest is to be fed again;
// otherwise len(b) and false.
func (m *Matcher) Feed(b []byte) (end int, found bool) {
	for i := 0; i < len(b); i++ {
		if m.matched == 0 {
			j := bytes.IndexByte(b[i:], m.pattern[0])
			if j < 0 {
				return len(b), false
			}
			i += j
		}
		for m.matched > 0 && b[i] != m.pattern[m.matched] {
			m.matched = m.fail[m.matched-1]
		}
		if b[i] == m.pattern[m.matched] {
			m.matched++
		}
		if m.matched == len(m.pattern) {
			m.matched = m.fail[m.matched-1]
			return i + 1, true
		}
	}
	return len(b), false
}
