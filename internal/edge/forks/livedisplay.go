package forks

import (
	"fmt"
	"os"
	"strings"
	"time"

	"brood/client"
	"brood/internal/edge/cli"
)

// barWidth is how many cells a bar has.
const barWidth = 24

// liveDisplay repaints a few lines at the bottom of a terminal: a line for
// each machine, bars for copies, how many forks are ready, the slowest. What
// is final goes above them and stays.
type liveDisplay struct {
	app     *app
	screen  *os.File
	book    *book
	palette cli.Palette
	began   time.Time
	painted int // lines on the screen now
}

func (d *liveDisplay) event(e *client.Event) error {
	d.book.note(e)
	return nil
}

func (d *liveDisplay) ran(o *outcome) error {
	d.book.ran(o)
	if err := d.paint(nil); err != nil {
		return err
	}
	return d.app.showOutcome(o)
}

func (d *liveDisplay) tick() error {
	cols, rows := cli.Size(d.screen)
	return d.paint(d.lines(time.Since(d.began), cols, rows))
}

// end leaves the failures and the sum on the screen.
func (d *liveDisplay) end() error {
	return d.paint(append(d.book.failed(d.palette), d.book.closing(d.palette)...))
}

// paint replaces what was painted before, in one write.
func (d *liveDisplay) paint(lines []string) error {
	var b strings.Builder
	if d.painted > 0 {
		fmt.Fprintf(&b, "\r\x1b[%dA\x1b[J", d.painted)
	}
	for _, l := range lines {
		b.WriteString(l)
		b.WriteString("\n")
	}
	d.painted = len(lines)
	if b.Len() == 0 {
		return nil
	}
	_, err := d.screen.WriteString(b.String())
	return err
}

// lines is the view; it never fills the screen, or it could not be painted
// over.
func (d *liveDisplay) lines(elapsed time.Duration, cols, rows int) []string {
	b, p := d.book, d.palette
	lines := []string{d.head(elapsed)}
	for _, name := range b.order {
		lines = append(lines, d.machineLine(name, b.machines[name]))
		for key, c := range b.copies {
			if strings.HasPrefix(key, name+"/") {
				lines = append(lines, "  "+bar(c.GetBytesDone(), c.GetBytesTotal())+" "+copyText(c))
			}
		}
	}
	if s := b.slowestText(); s != "" {
		lines = append(lines, p.Faint(s))
	}
	if n := len(b.failures); n > 0 {
		last := b.failures[n-1]
		lines = append(lines, p.Bad("failed")+" "+last.GetName()+": "+cli.OneLine(last.GetError()))
	}
	if most := max(rows-2, 1); len(lines) > most {
		more := len(lines) - most + 1
		lines = append(lines[:most-1], p.Faint(fmt.Sprintf("and %d more", more)))
	}
	for i, l := range lines {
		lines[i] = cli.Clip(l, cols-1)
	}
	return lines
}

func (d *liveDisplay) head(elapsed time.Duration) string {
	b, p := d.book, d.palette
	ended := uint64(b.ready) + uint64(len(b.failures))
	s := fmt.Sprintf("%s %s of %d", bar(ended, uint64(b.total)), p.Good(fmt.Sprintf("%d ready", b.ready)), b.total)
	if n := len(b.failures); n > 0 {
		s += ", " + p.Bad(fmt.Sprintf("%d failed", n))
	}
	if b.job != nil {
		s += fmt.Sprintf(", command ended in %d", b.ranOK+b.ranFailed)
		if b.ranFailed > 0 {
			s += " (" + p.Bad(fmt.Sprintf("%d failed", b.ranFailed)) + ")"
		}
	}
	return s + p.Faint(fmt.Sprintf("  %.1f s  batch %s", elapsed.Seconds(), b.id))
}

func (d *liveDisplay) machineLine(name string, m *machine) string {
	s := fmt.Sprintf("  %s  %d ready", d.palette.Bold(name), m.ready)
	if m.failed > 0 {
		s += fmt.Sprintf(", %d failed", m.failed)
	}
	if open := int64(m.placed) - int64(m.ready) - int64(m.failed); open > 0 && d.book.done == nil {
		s += fmt.Sprintf(", %d to come", open)
	}
	return s
}

func bar(done, total uint64) string {
	full := 0
	if total > 0 {
		full = int(barWidth * min(done, total) / total)
	}
	return "[" + strings.Repeat("=", full) + strings.Repeat(" ", barWidth-full) + "]"
}
