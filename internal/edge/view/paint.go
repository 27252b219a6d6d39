package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"brood/internal/base/clean"
	"brood/internal/base/id"
)

// colours are those of prefixes, in turns.
var colours = []string{"36", "35", "32", "33", "34", "96", "95", "92", "93", "94"}

// paint colours text, when colours are wanted.
type paint bool

func (p paint) in(code, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p paint) good(s string) string  { return p.in("32", s) }
func (p paint) warn(s string) string  { return p.in("33", s) }
func (p paint) bad(s string) string   { return p.in("31", s) }
func (p paint) faint(s string) string { return p.in("2", s) }
func (p paint) bold(s string) string  { return p.in("1", s) }

// label is a task's name in front of its lines.
func label(t id.Task) string {
	project, name := t.Split()
	return clean.Leading(clean.Text(string(project)) + ":" + clean.Text(name))
}

// took is a duration for people.
func took(ms int64) string { return length(time.Duration(ms) * time.Millisecond) }

func length(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
}

// plural is n things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// unmoving takes out what would move the cursor or clear the screen, which is
// not the task's own here.
var unmoving = strings.NewReplacer("\x1bc", "", "\x1b[2J", "", "\x1b[3J", "", "\x1b[H", "", "\x1b[1;1H", "", "\x1b[0;0H", "")

// visible is a line as a terminal would leave it: what a carriage return goes
// back over is not there any more.
func visible(line string) string {
	line = strings.TrimSuffix(line, "\r")
	if i := strings.LastIndexByte(line, '\r'); i >= 0 {
		line = line[i+1:]
	}
	if strings.IndexByte(line, '\x1b') >= 0 {
		line = unmoving.Replace(line)
	}
	return line
}

// plain is a text without colours.
func plain(s string) string { return ansi.Strip(s) }
