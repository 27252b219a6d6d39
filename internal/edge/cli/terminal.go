package cli

import (
	"os"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// size is columns and rows of a terminal.
func size(f *os.File) (cols, rows int) {
	cols, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || cols <= 0 || rows <= 0 {
		return 80, 24
	}
	return cols, rows
}

// screen is standard output when it is a terminal that can be painted on.
func (a *app) screen() (*os.File, bool) {
	f, ok := a.out.(*os.File)
	if !ok || !isTerminal(f) || os.Getenv("TERM") == "dumb" {
		return nil, false
	}
	return f, true
}

// clip cuts a text, which may have colours, to a width in cells.
func clip(s string, width int) string { return ansi.Truncate(s, max(width, 1), "…") }
