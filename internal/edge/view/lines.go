package view

import (
	"bytes"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// lineMost is how much of a line waits for its end: a longer one is shown in
	// pieces, so that a task that writes a file of many megabytes in one line
	// takes no more memory than others.
	lineMost = 64 << 10
	// sequenceMost is the length of the escape sequences that are kept in one
	// piece; those that tasks write in practice are shorter.
	sequenceMost = 32
)

// lines writes whole lines of a task, and pieces of one that is very long; the
// rest waits for its end.
func (v *View) lines(t *task, text string) {
	for text != "" {
		line, rest, whole := strings.Cut(text, "\n")
		for len(t.line)+len(line) > lineMost {
			n := lineMost - len(t.line)
			t.line = append(t.line, line[:n]...)
			line = line[n:]
			v.piece(t)
		}
		if !whole {
			t.line = append(t.line, line...)
			return
		}
		if len(t.line) > 0 {
			line = string(append(t.line, line...))
			t.line = t.line[:0]
		}
		v.line(t, visible(line))
		text = rest
	}
}

// piece makes room in what waits of a task's line: what a carriage return goes
// back over is not there any more, all else is written without an end.
func (v *View) piece(t *task) {
	if i := bytes.LastIndexByte(t.line[:len(t.line)-1], '\r'); i >= 0 {
		t.line = append(t.line[:0], t.line[i+1:]...)
		return
	}
	n := pieceOf(t.line)
	v.start(t)
	v.text.WriteString(visible(string(t.line[:n])))
	v.open = t
	t.line = append(t.line[:0], t.line[n:]...)
	v.spill()
}

// pieceOf is how much of a long line can be written before the rest is known:
// no half of a character or of an escape sequence, and no carriage return,
// which may belong to the line's end.
func pieceOf(line []byte) int {
	n := len(line)
	if line[n-1] == '\r' {
		n--
	}
	if i := bytes.LastIndexByte(line[n-sequenceMost:n], '\x1b'); i >= 0 {
		n -= sequenceMost - i
	}
	for back := 1; back < utf8.UTFMax; back++ {
		if b := line[n-back]; utf8.RuneStart(b) {
			if !utf8.FullRune(line[n-back : n]) {
				n -= back
			}
			break
		}
	}
	return n
}

// line ends a line of a task.
func (v *View) line(t *task, s string) {
	v.start(t)
	v.text.WriteString(s)
	v.text.WriteByte('\n')
	v.open = nil
	v.spill()
}

func (v *View) endLine(t *task) {
	if len(t.line) > 0 || v.open == t {
		v.line(t, visible(string(t.line)))
		t.line = nil
	}
}

// start begins a line of a task, with its name in front, unless the last one is
// its own and has no end yet.
func (v *View) start(t *task) {
	if v.open == t {
		return
	}
	v.breakLine()
	if !v.o.Bare {
		v.text.WriteString(v.paint.in(t.colour, label(t.info.Task)+": "))
	}
}

// breakLine makes room for something else where a task's long line has no end
// yet; what follows of it begins like a line.
func (v *View) breakLine() {
	if v.open != nil {
		v.text.WriteByte('\n')
		v.open = nil
	}
}

// spill writes what was gathered when it is much; the live part comes with the
// next tick.
func (v *View) spill() {
	if v.text.Len() >= writeAt {
		v.write(time.Time{}, false)
	}
}

// say writes a line of ours about a task; it has its name in front always.
func (v *View) say(t *task, s string) {
	v.endLine(t)
	v.breakLine()
	v.text.WriteString(v.paint.in(t.colour, label(t.info.Task)+": "))
	v.text.WriteString(s)
	v.text.WriteByte('\n')
}
