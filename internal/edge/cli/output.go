package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"brood/internal/base/clean"
)

// Value writes what no message of the protocol holds as one line of JSON.
func (a *App) Value(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return a.Line(b)
}

// Line writes a line of JSON.
func (a *App) Line(b []byte) error {
	_, err := fmt.Fprintf(a.Out, "%s\n", b)
	return err
}

// Text writes for people.
func (a *App) Text(format string, args ...any) error {
	_, err := fmt.Fprintf(a.Out, format, args...)
	return err
}

// Tell writes a line for people, which a program that reads JSON does not want.
func (a *App) Tell(format string, args ...any) {
	if !a.JSON {
		fmt.Fprintf(a.Out, format+"\n", args...)
	}
}

// Table writes rows under a heading, columns as wide as needed. Cells are
// cleaned: they hold names of others.
func Table(w io.Writer, head []string, rows [][]string) error {
	widths := make([]int, len(head))
	all := make([][]string, 0, 1+len(rows))
	for _, row := range append([][]string{head}, rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = clean.Text(cell)
			widths[i] = max(widths[i], utf8.RuneCountInString(cells[i]))
		}
		all = append(all, cells)
	}
	var b strings.Builder
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " "))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Facts writes what is known of one thing, a line each, cleaned; empty values
// are left out.
func Facts(w io.Writer, pairs [][2]string) error {
	width := 0
	for _, p := range pairs {
		if p[1] != "" {
			width = max(width, len(p[0]))
		}
	}
	var b strings.Builder
	for _, p := range pairs {
		if p[1] != "" {
			fmt.Fprintf(&b, "%-*s  %s\n", width, p[0], clean.Text(p[1]))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Brief is a duration in one or two units.
func Brief(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Took is a duration in milliseconds, for people.
func Took(ms uint64) string {
	if ms < 1000 {
		return fmt.Sprintf("%d ms", ms)
	}
	return fmt.Sprintf("%.1f s", float64(ms)/1000)
}

// Short is the beginning of a digest that people compare.
func Short(digest string) string {
	return digest[:min(12, len(digest))]
}

// Plural is n things.
func Plural[N int | uint32 | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// OrDash stands for what is not there.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Absolute is a path as the daemon understands it.
func Absolute(path string) (string, error) {
	return filepath.Abs(path)
}

// Joined is the errors of many things done at once.
func Joined(all []error) error { return errors.Join(all...) }

// LastLine is the length of data up to the end of its last whole line.
func LastLine(data []byte) int { return bytes.LastIndexByte(data, '\n') + 1 }

// Median is the middle one of the sorted values, the upper of two.
func Median[N int64 | uint64](all []N) N {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// SizeText is an amount of bytes for people.
func SizeText(n int64) string {
	switch {
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
