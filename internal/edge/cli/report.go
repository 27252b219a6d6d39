package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"brood/internal/base/errs"
	"brood/internal/wire"
)

// exitError ends the command with a status of its own: that of a command
// inside a sandbox, or of a batch.
type exitError struct {
	code int
	err  error // nil: nothing is left to say
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// report tells the user what went wrong and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return errs.ExitOK
	}
	code := errs.CodeOf(err).ExitCode()
	var status *exitError
	if errors.As(err, &status) {
		code = status.code
		if status.err == nil {
			return code
		}
	}
	if errors.Is(err, context.Canceled) {
		err = errs.New(errs.Canceled, "interrupted")
	}
	if a.json {
		fmt.Fprintf(a.err, "%s\n", errorJSON(err))
		return code
	}
	a.say("%s", errs.Text(err))
	return code
}

// say writes one line for people to standard error.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.err, "brood: %s\n", oneLine(fmt.Sprintf(format, args...)))
}

// oneLine joins the lines of a text: joined errors have one each.
func oneLine(s string) string {
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

// errorJSON is an error as a program reads it. The facts that every error has
// are fields of their own.
func errorJSON(err error) []byte {
	info := wire.Info(err)
	meta := info.GetMetadata()
	body := errorBody{
		Code:     meta[wire.MetaCode],
		Reason:   strings.TrimPrefix(info.GetReason().String(), "DAEMON_ERROR_REASON_"),
		Message:  oneLine(info.GetMessage()),
		Metadata: map[string]string{},
	}
	for k, v := range meta {
		if k != wire.MetaCode {
			body.Metadata[k] = v
		}
	}
	b, jsonErr := json.Marshal(map[string]errorBody{"error": body})
	if jsonErr != nil { // strings always marshal
		return []byte(`{"error":{}}`)
	}
	return b
}
