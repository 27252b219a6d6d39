package view

import (
	"bytes"
	"sync"
	"time"

	"brood/internal/run/orchestrator"
)

const (
	// writeAt is how much is gathered before it is written without a tick.
	writeAt = 64 << 10
	// groupMost is how much of a task's output a block shows: its end.
	groupMost = 8 << 20
	// againMost is how much of a failure's output is shown again at the end.
	againMost = 8 << 10
)

// View shows one run.
type View struct {
	o     Options
	paint paint

	mu      sync.Mutex // guards what follows, and the order of writes
	book    *book
	text    bytes.Buffer // not written yet
	painted int          // lines of the live part on the screen
	open    *task        // the last line written is a long one of it, without its end
	owner   *task        // the interactive task that has the terminal
	missed  bool         // so much was to be written meanwhile that its beginning is lost
	started int

	uploading bool  // it was said
	err       error // of the first write that failed
}

// New makes a view of a run that has not begun.
func New(o Options) *View {
	return &View{o: o, paint: paint(o.Colour), book: newBook()}
}

// Event shows what happened.
func (v *View) Event(at time.Time, e orchestrator.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := v.book.note(at, e)
	switch e.(type) {
	case orchestrator.Retrying, orchestrator.Ended:
		if t == v.owner {
			v.regain()
		}
	}
	v.show(t, e)
	if _, begins := e.(orchestrator.Started); begins && v.lends(t) {
		v.breakLine()
		v.write(at, false)
		v.owner = t
	}
	if v.text.Len() >= writeAt {
		v.write(at, true)
	}
}

// Tick writes what was gathered and paints the live part anew.
func (v *View) Tick(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.write(now, true)
}

// Close writes what is left and takes the live part away. It returns what kept
// the view from writing.
func (v *View) Close(now time.Time) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.regain()
	v.breakLine()
	v.write(now, false)
	return v.err
}

// write puts the gathered text above the live part, in one write.
func (v *View) write(now time.Time, live bool) {
	if v.owner != nil {
		v.hold()
		return
	}
	var b bytes.Buffer
	if v.painted > 0 {
		wipe(&b, v.painted)
		v.painted = 0
	}
	v.text.WriteTo(&b) //nolint:errcheck // a Buffer takes everything
	if live && v.open == nil && v.o.Size != nil && v.book.finished == nil && !v.book.began.IsZero() {
		lines := v.live(now)
		for _, l := range lines {
			b.WriteString(l)
			b.WriteByte('\n')
		}
		v.painted = len(lines)
	}
	if b.Len() == 0 || v.err != nil {
		return
	}
	_, v.err = v.o.Out.Write(b.Bytes())
}
