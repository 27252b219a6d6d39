package view

import (
	"strings"
	"unicode/utf8"
)

// held keeps the end of a task's output, in the parts in which it came, which
// cost nothing to keep and to let go.
type held struct {
	parts []string
	size  int
	cut   bool // the beginning was let go
}

// add keeps a text, and of all texts at least the last most bytes.
func (h *held) add(text string, most int) {
	if len(text) > 2*most {
		text, h.cut = strings.Clone(text[len(text)-most:]), true
	}
	h.parts = append(h.parts, text)
	h.size += len(text)
	for h.size-len(h.parts[0]) >= most {
		h.size -= len(h.parts[0])
		h.parts[0] = "" // or the slice keeps it
		h.parts, h.cut = h.parts[1:], true
	}
}

// end is the last most bytes, from the beginning of a line where there is one.
func (h *held) end(most int) string {
	text := ""
	for i := len(h.parts) - 1; i >= 0 && len(text) < most; i-- {
		part := h.parts[i]
		text = part[max(0, len(part)-(most-len(text))):] + text
	}
	if len(text) == h.size && !h.cut {
		return text
	}
	if _, after, ok := strings.Cut(text, "\n"); ok {
		return after
	}
	for range min(utf8.UTFMax-1, len(text)) {
		if utf8.RuneStart(text[0]) {
			break
		}
		text = text[1:]
	}
	return text
}

// tail is the last lines of what was kept, and not more than people read.
func (h *held) tail(lines int) string {
	text := strings.TrimRight(h.end(2*againMost), "\n")
	at := len(text)
	for range lines {
		if at = strings.LastIndexByte(text[:at], '\n'); at < 0 {
			return text
		}
	}
	return text[at+1:]
}
