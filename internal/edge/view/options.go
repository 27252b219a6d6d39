package view

import (
	"io"

	"brood/internal/base/errs"
)

// Options say how a run is shown.
type Options struct {
	Out io.Writer
	// Size is that of the terminal that Out is; nil: Out is no terminal, and
	// nothing is painted over.
	Size func() (cols, rows int)
	// Colour says whether colours are wanted.
	Colour bool
	// Logs is full, hash-only, new-only, errors-only or none for every task;
	// empty: what the workspace says of each.
	Logs string
	// Grouped shows the output of a task as one block once it has ended.
	Grouped bool
	// Bare leaves out the prefix that says whose line it is.
	Bare bool
	// GitHub speaks to the log of a GitHub workflow: foldable groups, annotations.
	GitHub bool
	// Lend says that interactive tasks that end have the terminal while they run:
	// nothing is written then.
	Lend bool
}

// The output modes.
const (
	LogsFull       = "full"
	LogsHashOnly   = "hash-only"
	LogsNewOnly    = "new-only"
	LogsErrorsOnly = "errors-only"
	LogsNone       = "none"
)

// ParseLogs checks the value of --output-logs.
func ParseLogs(s string) (string, error) {
	switch s {
	case "", LogsFull, LogsHashOnly, LogsNewOnly, LogsErrorsOnly, LogsNone:
		return s, nil
	}
	return "", errs.New(errs.InvalidArgument, "--output-logs %q is not known: use full, hash-only, new-only, errors-only or none", s)
}

// Mode is how a task's output is shown, given what the workspace wants of it.
func (o Options) Mode(wanted string) string {
	switch {
	case o.Logs != "":
		return o.Logs
	case wanted != "":
		return wanted
	}
	return LogsFull
}

// Replays says that the stored output of a hit is shown in a mode.
func Replays(mode string) bool { return mode == LogsFull }
