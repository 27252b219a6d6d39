package client

import (
	"context"
	"errors"
	"strings"

	"connectrpc.com/connect"

	"brood/internal/base/errs"
	"brood/internal/wire"
)

// Error is what every method of this package returns when it fails.
type Error struct {
	// Reason is the name of the protocol's DaemonErrorReason without its
	// prefix: "NOT_FOUND", "INVALID_ARGUMENT", "INSUFFICIENT_DISK".
	Reason string
	// Message says what was asked, what is, and what would work.
	Message string
	// Metadata holds facts for programs; "brood_code" is the exact code, such
	// as "already_exists".
	Metadata map[string]string

	cause error
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the error with its code.
func (e *Error) Unwrap() error { return e.cause }

// failed makes the error of a call one of this package.
func failed(err error) error {
	var done *Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	if notText(err) {
		err = errs.New(errs.InvalidArgument, "a name, path, argument or value is not UTF-8: messages carry text alone (files in a folder are copied whatever they are called)")
	}
	err = wire.FromError(err)
	info := wire.Info(err)
	return &Error{
		Reason:   strings.TrimPrefix(info.GetReason().String(), "DAEMON_ERROR_REASON_"),
		Message:  err.Error(),
		Metadata: info.GetMetadata(),
		cause:    err,
	}
}

// notText reports whether a request could not be written because a field of it
// is no text. The library has no error of its own for that.
func notText(err error) bool {
	var call *connect.Error
	return errors.As(err, &call) && !connect.IsWireError(err) && call.Code() == connect.CodeInternal && strings.Contains(call.Message(), "invalid UTF-8")
}

// ended is the error of a method whose context ended, in front of what the
// call returned because of it.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return failed(ctx.Err())
	}
	if err = failed(err); errs.Is(err, errs.Canceled) { // not by the caller, then
		return failed(errs.New(errs.Unavailable, "the daemon ended before the call did: it was stopped or restarted. Sandboxes run on; call again"))
	}
	return err
}
