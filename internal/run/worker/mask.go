package worker

import (
	"bytes"
	"io"
	"sort"
	"strings"
)

// shortestSecret is how long a value must be to be masked: a shorter one would
// be found in half of all output.
const shortestSecret = 6

// blot stands in the output where a secret was.
var blot = []byte("***")

var secretWords = []string{"TOKEN", "SECRET", "KEY", "PASSWORD", "PASSWD", "CREDENTIAL"}

// secretsOf returns the values that must not be seen: those of variables
// whose name says that they are secret. Of a value with several lines each
// line is one too, since programs print them apart.
func secretsOf(all ...vars) [][]byte {
	found := map[string]bool{}
	for _, v := range all {
		for name, value := range v {
			if !namesSecret(name) {
				continue
			}
			addSecret(found, value)
			for line := range strings.Lines(value) {
				addSecret(found, line)
			}
		}
	}
	list := make([][]byte, 0, len(found))
	for s := range found {
		list = append(list, []byte(s))
	}
	sort.Slice(list, func(i, j int) bool { return string(list[i]) < string(list[j]) })
	return list
}

func addSecret(found map[string]bool, s string) {
	if s = strings.TrimSpace(s); len(s) >= shortestSecret {
		found[s] = true
	}
}

func namesSecret(name string) bool {
	name = strings.ToUpper(name)
	for _, w := range secretWords {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}

// masker writes on what is written to it, with every occurrence of a secret
// replaced, wherever it was cut into chunks. What may be the beginning of a
// secret is held back until more comes, so never more than the longest secret.
type masker struct {
	out     io.Writer
	secrets [][]byte
	// held is what was not written yet; its first covered bytes belong to an
	// occurrence whose blot was.
	held    []byte
	covered int
}

func newMasker(out io.Writer, secrets [][]byte) *masker {
	return &masker{out: out, secrets: secrets}
}

// Write never reports fewer bytes than it was given, except with an error.
func (m *masker) Write(p []byte) (int, error) {
	if len(m.secrets) == 0 {
		return m.out.Write(p)
	}
	m.held = append(m.held, p...)
	if err := m.emit(len(m.held) - m.openEnd()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes what was held back: nothing more comes.
func (m *masker) Flush() error { return m.emit(len(m.held)) }

// openEnd is how many bytes at the end of held may be the beginning of a
// secret.
func (m *masker) openEnd() int {
	longest := 0
	for _, s := range m.secrets {
		for n := min(len(s)-1, len(m.held)); n > longest; n-- {
			if bytes.HasSuffix(m.held, s[:n]) {
				longest = n
				break
			}
		}
	}
	return longest
}

// span is a masked part of held, its end excluded.
type span struct{ from, to int }

// emit writes the first cut bytes of held, masked, and keeps the rest.
func (m *masker) emit(cut int) error {
	if cut == 0 {
		return nil
	}
	var out []byte
	at := 0
	next := 0 // how much of what stays is covered already
	for _, s := range m.spans() {
		if s.from >= cut {
			break
		}
		out = append(out, m.held[at:max(at, s.from)]...)
		if s.from > 0 || m.covered == 0 {
			out = append(out, blot...)
		}
		at = min(s.to, cut)
		next = max(0, s.to-cut)
	}
	out = append(out, m.held[at:max(at, cut)]...)
	m.held = append(m.held[:0], m.held[cut:]...)
	m.covered = next
	if len(out) == 0 {
		return nil
	}
	_, err := m.out.Write(out)
	return err
}

// spans finds every occurrence, overlapping ones as one, in order.
func (m *masker) spans() []span {
	var all []span
	if m.covered > 0 {
		all = append(all, span{0, m.covered})
	}
	for _, s := range m.secrets {
		for at := 0; ; {
			i := bytes.Index(m.held[at:], s)
			if i < 0 {
				break
			}
			all = append(all, span{at + i, at + i + len(s)})
			at += i + 1
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].from < all[j].from })
	merged := all[:0]
	for _, s := range all {
		if n := len(merged); n > 0 && s.from < merged[n-1].to {
			merged[n-1].to = max(merged[n-1].to, s.to)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}
