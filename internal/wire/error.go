package wire

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"connectrpc.com/connect"

	daemonv1 "brood/api/cua/daemon/v1"
	"brood/internal/base/errs"
)

// MetaCode is the key of DaemonErrorInfo.metadata that has the exact code, such
// as "already_exists". Package errs has the others that mean something.
const MetaCode = "brood_code"

// Errors travel in HTTP/2 headers, up to three times over and encoded; Node
// accepts 64 KiB of headers in all. Longer texts are cut.
const (
	maxText  = 8 << 10
	maxFacts = 4 << 10 // all metadata together
)

// hidden is what a stranger learns of a defect.
const hidden = "internal error: the daemon's log on that machine says more"

// Error returns err in its wire form, for a handler to return to a peer of the
// same user. An error that is in wire form already is returned as it is, one
// of the library with the details that it lacks; nil stays nil.
func Error(err error) error { return toWire(err, false) }

// ForeignError is Error for a peer on another machine: the text of a defect,
// which may name anything, stays here.
func ForeignError(err error) error { return toWire(err, true) }

func toWire(err error, foreign bool) error {
	if err == nil {
		return nil
	}
	var ours *errs.Error
	var theirs *connect.Error
	if !errors.As(err, &ours) && errors.As(err, &theirs) {
		if infoOf(theirs) != nil {
			return theirs
		}
		err = errs.New(ofRequest(theirs), "%w", &said{text: theirs.Message(), cause: theirs})
	}
	info := Info(err)
	if foreign && errs.CodeOf(err) == errs.Internal {
		info.Message, info.Metadata = hidden, map[string]string{MetaCode: errs.Internal.Word()}
	}
	e := connect.NewError(statusOf(errs.CodeOf(err)), errors.New(info.GetMessage()))
	if d, err := connect.NewErrorDetail(info); err == nil { // fails on invalid UTF-8 only, which Info removes
		e.AddDetail(d)
	}
	return e
}

// ofRequest is the code of an error that the library made of a request. Wrong
// frames, or a wrong number of messages, are the caller's fault, which it calls
// internal and unimplemented.
func ofRequest(e *connect.Error) errs.Code {
	text := e.Message()
	switch {
	case e.Code() == connect.CodeInternal && (strings.HasPrefix(text, "protocol error: ") || strings.HasPrefix(text, "read message: ")),
		e.Code() == connect.CodeUnimplemented && strings.HasPrefix(text, "unary request has "):
		return errs.InvalidArgument
	}
	return codeOf(e.Code(), nil)
}

// Info returns reason, message and metadata of an error, as they cross the
// wire.
func Info(err error) *daemonv1.DaemonErrorInfo {
	code := errs.CodeOf(err)
	meta := map[string]string{MetaCode: code.Word()}
	left := maxFacts
	facts := errs.MetaOf(err)
	for _, k := range slices.Sorted(maps.Keys(facts)) {
		v := clip(facts[k], maxFacts)
		k = clip(k, maxFacts)
		if left -= len(k) + len(v); left >= 0 {
			meta[k] = v
		}
	}
	return &daemonv1.DaemonErrorInfo{
		Reason:   reasonOf(code, facts),
		Message:  clip(errs.Text(err), maxText),
		Metadata: meta,
	}
}

// clip makes s valid UTF-8 of at most limit bytes.
func clip(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	const mark = "…"
	cut := limit - len(mark)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + mark
}

// FromError turns an error of a call into one with a code of package errs, the
// peer's text and its facts. The error of the call stays in the chain. An
// error that has a code already is returned as it is; nil stays nil.
func FromError(err error) error {
	if err == nil {
		return nil
	}
	var ours *errs.Error
	if errors.As(err, &ours) {
		return err
	}
	var call *connect.Error
	if !errors.As(err, &call) {
		return errs.New(errs.CodeOf(err), "%w", err)
	}
	info := infoOf(call)
	if info == nil && broken(err) {
		return errs.New(errs.Unavailable, "the connection broke before the answer was whole (%w): the daemon ended or was killed; "+
			"the next command starts one, which cleans up and goes on", err)
	}
	if info == nil && unreached(err) {
		return errs.New(errs.Unavailable, "no daemon answers (%w): it ended, or there was none; the next command starts one", err)
	}
	said := &said{text: call.Message(), cause: err}
	if info.GetMessage() != "" {
		said.text = info.GetMessage()
	}
	e := errs.New(codeOf(call.Code(), info), "%w", said)
	for k, v := range info.GetMetadata() {
		if k != MetaCode {
			e = errs.With(e, k, v)
		}
	}
	return e
}

// broken reports whether a call ended because nobody is at the other end any
// more, whatever the client library makes of that.
func broken(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op != "dial" ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// unreached reports whether nobody was there to take the call.
func unreached(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// infoOf returns the DaemonErrorInfo of a call's error; nil when the peer sent
// none, or one that cannot be read.
func infoOf(call *connect.Error) *daemonv1.DaemonErrorInfo {
	for _, d := range call.Details() {
		if v, err := d.Value(); err == nil {
			if info, ok := v.(*daemonv1.DaemonErrorInfo); ok {
				return info
			}
		}
	}
	return nil
}

// said is the peer's own text in front of the error that carried it.
type said struct {
	text  string
	cause error
}

func (s *said) Error() string { return s.text }
func (s *said) Unwrap() error { return s.cause }
