package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"brood/internal/base/clean"
	"brood/internal/base/errs"
)

// ExitError ends the command with a status of its own: that of a command
// inside a sandbox, or of a batch.
type ExitError struct {
	Code int
	Err  error // nil: nothing is left to say
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Report tells the user what went wrong and returns the exit code.
func (a *App) Report(err error) int {
	if err == nil {
		return errs.ExitOK
	}
	code := errs.CodeOf(err).ExitCode()
	var status *ExitError
	if errors.As(err, &status) {
		code = status.Code
		if status.Err == nil {
			return code
		}
	}
	if errors.Is(err, context.Canceled) {
		err = errs.New(errs.Canceled, "interrupted")
	}
	if a.JSON {
		fmt.Fprintf(a.Err, "%s\n", errorJSON(err))
		return code
	}
	a.Say("%s", errs.Text(err))
	return code
}

// Say writes one line for people to standard error, names in it cleaned.
func (a *App) Say(format string, args ...any) {
	fmt.Fprintf(a.Err, "brood: %s\n", clean.Message(fmt.Sprintf(format, args...)))
}

// OneLine joins the lines of a text: joined errors have one each.
func OneLine(s string) string {
	var parts []string
	for line := range strings.SplitSeq(s, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			parts = append(parts, line)
		}
	}
	return strings.Join(parts, "; ")
}

type errorBody struct {
	Code     string            `json:"code"`
	Reason   string            `json:"reason"`
	Message  string            `json:"message"`
	Metadata map[string]string `json:"metadata"`
}

// errorJSON is an error as a program reads it.
func errorJSON(err error) []byte {
	code, meta := errs.CodeOf(err), errs.MetaOf(err)
	if meta == nil {
		meta = map[string]string{}
	}
	body := errorBody{Code: code.Word(), Reason: errs.Reason(code, meta), Message: OneLine(errs.Text(err)), Metadata: meta}
	b, jsonErr := json.Marshal(map[string]errorBody{"error": body})
	if jsonErr != nil { // strings always marshal
		return []byte(`{"error":{}}`)
	}
	return b
}
