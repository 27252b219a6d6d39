package view

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"brood/internal/run"
)

// barWidth is how many cells the bar has.
const barWidth = 20

// wipe moves to the first of n painted lines and clears from there.
func wipe(b *bytes.Buffer, n int) { fmt.Fprintf(b, "\r\x1b[%dA\x1b[J", n) }

// live is the part at the bottom of a terminal: a line for each running task,
// and one for the whole. It never fills the screen, or it could not be painted
// over.
func (v *View) live(now time.Time) []string {
	cols, rows := v.o.Size()
	most := max(1, min(rows-2, 12))
	var lines []string
	for _, t := range v.book.running {
		lines = append(lines, v.runningLine(t, now))
	}
	for _, t := range v.book.queued {
		lines = append(lines, v.runningLine(t, now)+v.paint.faint(" waits"))
	}
	if len(lines) > most {
		more := len(lines) - most + 1
		lines = append(lines[:most-1], v.paint.faint(fmt.Sprintf("  and %d more", more)))
	}
	lines = append(lines, v.wholeLine(now))
	for i, l := range lines {
		lines[i] = ansi.Truncate(l, max(cols-1, 1), "…")
	}
	return lines
}

func (v *View) runningLine(t *task, now time.Time) string {
	s := "  " + v.paint.in(t.colour, label(t.info.Task)) + " " + v.paint.faint(length(now.Sub(t.began)))
	if t.attempt > 1 {
		s += v.paint.warn(fmt.Sprintf(" attempt %d", t.attempt))
	}
	return s
}

func (v *View) wholeLine(now time.Time) string {
	b, p := v.book, v.paint
	share, left := b.ahead(now)
	full := int(share * barWidth)
	s := "[" + strings.Repeat("=", full) + strings.Repeat(" ", barWidth-full) + fmt.Sprintf("] %d%%  ", int(share*100))
	parts := []string{p.good(fmt.Sprintf("%d done", b.count[run.Success]+b.count[run.Cached]))}
	if n := b.count[run.Cached]; n > 0 {
		parts[0] += fmt.Sprintf(" (%d cached)", n)
	}
	if n := b.count[run.Failed]; n > 0 {
		parts = append(parts, p.bad(fmt.Sprintf("%d failed", n)))
	}
	if n := b.count[run.Skipped] + b.count[run.Aborted]; n > 0 {
		parts = append(parts, p.warn(fmt.Sprintf("%d not run", n)))
	}
	if n := len(b.running); n > 0 {
		parts = append(parts, fmt.Sprintf("%d running", n))
	}
	parts = append(parts, fmt.Sprintf("%d total", b.total))
	if b.uploading > 0 {
		parts = append(parts, uploading(b.uploading))
	}
	s += strings.Join(parts, " · ") + p.faint("  "+length(now.Sub(b.began)))
	if left > 0 {
		s += p.faint(", about " + length(left.Round(time.Second)) + " left")
	}
	return s
}
