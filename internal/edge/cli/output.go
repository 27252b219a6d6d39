package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"brood/internal/wire"
)

// message writes a message of the protocol as one line of JSON.
func (a *app) message(m proto.Message) error {
	b, err := wire.JSON(m)
	if err != nil {
		return err
	}
	return a.line(b)
}

// value writes what no message of the protocol holds as one line of JSON.
func (a *app) value(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return a.line(b)
}

func (a *app) line(b []byte) error {
	_, err := fmt.Fprintf(a.out, "%s\n", b)
	return err
}

// text writes for people.
func (a *app) text(format string, args ...any) error {
	_, err := fmt.Fprintf(a.out, format, args...)
	return err
}

// table writes rows under a heading, columns as wide as needed.
func table(w io.Writer, head []string, rows [][]string) error {
	widths := make([]int, len(head))
	all := append([][]string{head}, rows...)
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
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

// facts writes what is known of one thing, a line each; empty values are left
// out.
func facts(w io.Writer, pairs [][2]string) error {
	width := 0
	for _, p := range pairs {
		if p[1] != "" {
			width = max(width, len(p[0]))
		}
	}
	var b strings.Builder
	for _, p := range pairs {
		if p[1] != "" {
			fmt.Fprintf(&b, "%-*s  %s\n", width, p[0], p[1])
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ago says how long ago something was.
func ago(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return brief(time.Since(t.AsTime())) + " ago"
}

// in says when something will be.
func in(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return "in " + brief(time.Until(t.AsTime()))
}

// brief is a duration in one or two units.
func brief(d time.Duration) string {
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

// took is a duration in milliseconds, for people.
func took(ms uint64) string {
	if ms < 1000 {
		return fmt.Sprintf("%d ms", ms)
	}
	return fmt.Sprintf("%.1f s", float64(ms)/1000)
}

// word is the value of an enum without its prefix, in lower case.
func word(value fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(value.String(), prefix), "_", "-"))
}

// short is the beginning of a digest that people compare.
func short(digest string) string {
	return digest[:min(12, len(digest))]
}

// plural is n things.
func plural[N int | uint32 | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// orDash stands for what is not there.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// absolute is a path as the daemon understands it.
func absolute(path string) (string, error) {
	return filepath.Abs(path)
}

// joined is the errors of many things done at once.
func joined(all []error) error { return errors.Join(all...) }

// lastLine is the length of data up to the end of its last whole line.
func lastLine(data []byte) int { return bytes.LastIndexByte(data, '\n') + 1 }

// named writes a message of the protocol with the name of what it belongs to.
func (a *app) named(name, kind string, m proto.Message) error {
	b, err := wire.JSON(m)
	if err != nil {
		return err
	}
	n, err := json.Marshal(name)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "{\"name\":%s,%q:%s}\n", n, kind, b)
	return err
}
