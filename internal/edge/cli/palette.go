package cli

import "os"

// palette colours text for a terminal; without colours it changes nothing.
type palette struct{ on bool }

// palette is that of standard output. NO_COLOR is respected.
func (a *app) palette() palette {
	_, screen := a.screen()
	return palette{on: screen && os.Getenv("NO_COLOR") == ""}
}

func (p palette) good(s string) string  { return p.paint("32", s) }
func (p palette) warn(s string) string  { return p.paint("33", s) }
func (p palette) bad(s string) string   { return p.paint("31", s) }
func (p palette) faint(s string) string { return p.paint("2", s) }
func (p palette) bold(s string) string  { return p.paint("1", s) }

func (p palette) paint(code, s string) string {
	if !p.on || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
