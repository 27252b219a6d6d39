package errs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Error is an error with a code. Its text is for the person who made the
// request; Meta holds facts for programs (candidates, missing bytes).
type Error struct {
	Code Code
	Meta map[string]string
	err  error
}

// Error returns the message alone; the code is not part of the text.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns the wrapped error, so that %w in New's format is matched by
// errors.Is and errors.As, also when there are several.
func (e *Error) Unwrap() error {
	if _, several := e.err.(interface{ Unwrap() []error }); several {
		return e.err
	}
	return errors.Unwrap(e.err)
}

// New returns an error with a code; the format is that of fmt.Errorf, %w
// included.
func New(code Code, format string, args ...any) error {
	return &Error{Code: code, err: fmt.Errorf(format, args...)}
}

// With returns err with one more fact for programs. The code is kept; an
// error without a code becomes Internal.
func With(err error, key, value string) error {
	if err == nil {
		return nil
	}
	meta := map[string]string{key: value}
	for k, v := range MetaOf(err) {
		if k != key {
			meta[k] = v
		}
	}
	return &Error{Code: CodeOf(err), Meta: meta, err: fmt.Errorf("%w", err)}
}

// CodeOf returns the code that err carries: the outermost one. Errors of the
// context package have theirs by nature, and a full disk or quota is
// InsufficientDisk wherever no more than a wrong state or a defect is said; any
// other error is Internal, nil is OK.
func CodeOf(err error) Code {
	code := said(err)
	if (code == Internal || code == FailedPrecondition) && DiskFull(err) {
		return InsufficientDisk
	}
	return code
}

// DiskFull reports whether the cause of err is a full disk or quota.
func DiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Text is the message of err for the person who made the request. What a full
// disk stopped says so in the same words everywhere.
func Text(err error) string {
	text := err.Error()
	if CodeOf(err) == InsufficientDisk && DiskFull(err) && !strings.Contains(text, "disk is full") {
		text += ": the disk is full, free some space"
	}
	return text
}

// said is the code that err says, or has by nature.
func said(err error) Code {
	if err == nil {
		return OK
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	if errors.Is(err, context.Canceled) {
		return Canceled
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return DeadlineExceeded
	}
	return Internal
}

// MetaOf returns the facts for programs that err carries; nil when none.
func MetaOf(err error) map[string]string {
	var e *Error
	for errors.As(err, &e) {
		if e.Meta != nil {
			return e.Meta
		}
		err = e.Unwrap()
	}
	return nil
}

// Is reports whether err carries code.
func Is(err error, code Code) bool { return err != nil && CodeOf(err) == code }
