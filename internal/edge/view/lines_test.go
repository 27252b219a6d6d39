package view_test

import (
	"bytes"
	"strings"
	"testing"

	"brood/internal/edge/view"
	"brood/internal/run"
	"brood/internal/run/orchestrator"
)

// largest keeps what is written, and how much at once.
type largest struct {
	bytes.Buffer
	most int
}

func (l *largest) Write(p []byte) (int, error) {
	l.most = max(l.most, len(p))
	return l.Buffer.Write(p)
}

// outputs is a text as a run passes it on.
func outputs(text string) []orchestrator.Event {
	events := []orchestrator.Event{
		orchestrator.Began{Tasks: []orchestrator.TaskInfo{{Task: "a#b"}, {Task: "c#d"}}},
		orchestrator.Keyed{Task: "a#b", Key: key('a'), Cache: "miss"},
		orchestrator.Started{Task: "a#b", Attempt: 1},
	}
	for len(text) > 0 {
		n := min(len(text), 200_001)
		events = append(events, orchestrator.Output{Task: "a#b", Text: text[:n]})
		text = text[n:]
	}
	return events
}

// TestALongLineIsShownInPieces: all of it is seen, with its name once, and no
// more than pieces of it are held.
func TestALongLineIsShownInPieces(t *testing.T) {
	long := strings.Repeat("0123456789ä\x1b[1mx", 1<<19)
	for name, o := range map[string]view.Options{
		"stream": {}, "on a terminal": {Size: func() (int, int) { return 80, 24 }}, "bare": {Bare: true}, "grouped": {Grouped: true},
	} {
		text, most := long, 600<<10
		if o.Grouped {
			text = text[:7<<20] // of more only the end is kept
		}
		var out largest
		o.Out = &out
		v := view.New(o)
		for _, e := range append(outputs(text+"\nshort\n"), orchestrator.Ended{Task: "a#b", Status: run.Success}) {
			v.Event(zero, e)
			v.Tick(zero)
		}
		if err := v.Close(zero); err != nil {
			t.Fatal(err)
		}
		prefix := "a:b: "
		if o.Bare {
			prefix = ""
		}
		seen := screen(out.String())
		if !strings.Contains(seen, prefix+text+"\n"+prefix+"short\n") {
			t.Errorf("%s: the line is not seen as it was written (%d bytes, its name %d times)", name, len(seen), strings.Count(seen, "a:b: "))
		}
		if out.most > most {
			t.Errorf("%s: %d bytes were held", name, out.most)
		}
	}
}

// TestALongLineStaysItsTasks: another task's line between its pieces is a line
// of its own, and what follows says whose it is.
func TestALongLineStaysItsTasks(t *testing.T) {
	part := strings.Repeat("x", 64<<10)
	events := append(outputs(part+part), orchestrator.Started{Task: "c#d", Attempt: 1}, orchestrator.Output{Task: "c#d", Text: "between\n"},
		orchestrator.Output{Task: "a#b", Text: part + "\nlast\n"}, orchestrator.Ended{Task: "a#b", Status: run.Failed, Exit: 1})
	text := tell(t, view.Options{}, events)
	want := "a:b: " + part + "\nc:d: cache miss , runs\nc:d: between\na:b: " + part + part + "\na:b: last\n"
	if !strings.Contains(text, want) {
		t.Errorf("%.300q", strings.ReplaceAll(text, part, "X"))
	}
}

// TestSequencesStayWhole: what would clear the screen is taken out also where a
// long line is cut, and a line's end is one.
func TestSequencesStayWhole(t *testing.T) {
	const most = 64 << 10
	for cut := most - 6; cut <= most+1; cut++ {
		text := tell(t, view.Options{}, outputs(strings.Repeat("x", cut)+"\x1b[2Jmore\r\n"))
		if !strings.Contains(text, strings.Repeat("x", cut)+"more\n") {
			t.Errorf("cut at %d: %q", cut, text[max(0, len(text)-20):])
		}
	}
	bar := strings.Repeat("\r"+strings.Repeat("#", 70), 4000)
	if text := tell(t, view.Options{}, outputs(bar+"\rdone\n")); !strings.HasSuffix(text, "a:b: done\n") {
		t.Errorf("%d bytes of a bar", len(text))
	}
}
