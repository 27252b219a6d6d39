package cli

import "os"

// Palette colours text for a terminal; without colours it changes nothing.
type Palette struct{ On bool }

// Palette is that of standard output. NO_COLOR is respected.
func (a *App) Palette() Palette {
	_, screen := a.Screen()
	return Palette{On: screen && os.Getenv("NO_COLOR") == ""}
}

// Good is what went well.
func (p Palette) Good(s string) string { return p.paint("32", s) }

// Warn is what a person should know.
func (p Palette) Warn(s string) string { return p.paint("33", s) }

// Bad is what failed.
func (p Palette) Bad(s string) string { return p.paint("31", s) }

// Faint is what matters less.
func (p Palette) Faint(s string) string { return p.paint("2", s) }

// Bold is what matters most.
func (p Palette) Bold(s string) string { return p.paint("1", s) }

func (p Palette) paint(code, s string) string {
	if !p.On || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
