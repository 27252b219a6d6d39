package cli

import (
	"os"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Size is columns and rows of a terminal.
func Size(f *os.File) (cols, rows int) {
	cols, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || cols <= 0 || rows <= 0 {
		return 80, 24
	}
	return cols, rows
}

// Screen is standard output when it is a terminal that can be painted on.
func (a *App) Screen() (*os.File, bool) {
	f, ok := a.Out.(*os.File)
	if !ok || !IsTerminal(f) || os.Getenv("TERM") == "dumb" {
		return nil, false
	}
	return f, true
}

// Clip cuts a text, which may have colours, to a width in cells.
func Clip(s string, width int) string { return ansi.Truncate(s, max(width, 1), "…") }
