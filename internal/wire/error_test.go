package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"connectrpc.com/connect"

	daemonv1 "brood/api/cua/daemon/v1"
	"brood/internal/base/errs"
	"brood/internal/wire"
)

// strip rebuilds a wire error as a peer that is not brood would send it: same
// status, same reason, no metadata.
func strip(t *testing.T, err error) error {
	t.Helper()
	var call *connect.Error
	if !errors.As(err, &call) {
		t.Fatalf("%T is no wire error", err)
	}
	v, derr := call.Details()[0].Value()
	if derr != nil {
		t.Fatal(derr)
	}
	info := v.(*daemonv1.DaemonErrorInfo)
	info.Metadata = nil
	d, derr := connect.NewErrorDetail(info)
	if derr != nil {
		t.Fatal(derr)
	}
	out := connect.NewError(call.Code(), errors.New(call.Message()))
	out.AddDetail(d)
	return out
}

func TestEveryCodeSurvivesTheWire(t *testing.T) {
	type pair struct {
		status connect.Code
		reason daemonv1.DaemonErrorReason
	}
	seen := map[pair]errs.Code{}
	for _, code := range errs.Codes() {
		err := fmt.Errorf("fork base into x-1: %w", errs.With(errs.New(code, "because"), "k", "v"))
		sent := wire.Error(err)
		p := pair{connect.CodeOf(sent), wire.Info(err).GetReason()}
		if other, dup := seen[p]; dup {
			t.Errorf("%s and %s look the same on the wire: %v", code, other, p)
		}
		seen[p] = code
		if p.reason == daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_UNSPECIFIED {
			t.Errorf("%s has no reason", code)
		}
		for name, got := range map[string]error{"brood": wire.FromError(sent), "other": wire.FromError(strip(t, sent))} {
			if errs.CodeOf(got) != code {
				t.Errorf("%s came back from a %s peer as %s", code, name, errs.CodeOf(got))
			}
			if got.Error() != "fork base into x-1: because" {
				t.Errorf("text %q", got.Error())
			}
		}
		meta := errs.MetaOf(wire.FromError(sent))
		if meta["k"] != "v" || len(meta) != 1 {
			t.Errorf("%s: facts came back as %v", code, meta)
		}
	}
}

func TestEveryReasonAndStatusMeansACode(t *testing.T) {
	for n := range daemonv1.DaemonErrorReason_name {
		reason := daemonv1.DaemonErrorReason(n)
		d, err := connect.NewErrorDetail(&daemonv1.DaemonErrorInfo{Reason: reason, Message: "said"})
		if err != nil {
			t.Fatal(err)
		}
		call := connect.NewError(connect.CodeUnknown, errors.New("status"))
		call.AddDetail(d)
		got := errs.CodeOf(wire.FromError(call))
		defect := reason == daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_INTERNAL || reason == daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_UNSPECIFIED
		if (got == errs.Internal) != defect || got == errs.OK {
			t.Errorf("%s with an unknown status is %s", reason, got)
		}
	}
	for status := connect.CodeCanceled; status <= connect.CodeUnauthenticated; status++ {
		got := errs.CodeOf(wire.FromError(connect.NewError(status, errors.New("x"))))
		defect := status == connect.CodeInternal || status == connect.CodeUnknown
		if (got == errs.Internal) != defect || got == errs.OK {
			t.Errorf("status %s without a reason is %s", status, got)
		}
	}
	if got := errs.CodeOf(wire.FromError(connect.NewError(connect.Code(99), errors.New("x")))); got != errs.Internal {
		t.Errorf("a status nobody knows is %s", got)
	}
}

func TestFinerReasonsOfBadArguments(t *testing.T) {
	ambiguous := errs.With(errs.New(errs.InvalidArgument, "two"), errs.MetaCandidates, "local:a,m2/a")
	placement := errs.With(errs.New(errs.InvalidArgument, "on"), errs.MetaAxis, "on")
	for err, want := range map[error]daemonv1.DaemonErrorReason{
		ambiguous: daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_AMBIGUOUS_SANDBOX,
		placement: daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_INVALID_PLACEMENT,
	} {
		if got := wire.Info(err).GetReason(); got != want {
			t.Errorf("%v: %s", err, got)
		}
		if got := errs.CodeOf(wire.FromError(strip(t, wire.Error(err)))); got != errs.InvalidArgument {
			t.Errorf("%v came back as %s", err, got)
		}
	}
	if errs.MetaOf(wire.FromError(wire.Error(ambiguous)))["candidates"] != "local:a,m2/a" {
		t.Error("candidates are lost")
	}
}

func TestDefectsAreHiddenFromOtherMachinesOnly(t *testing.T) {
	secret := errs.With(fmt.Errorf("open /home/ada/.brood/key: %w", io.ErrUnexpectedEOF), "path", "/home/ada")
	if got := wire.FromError(wire.Error(secret)); got.Error() != "open /home/ada/.brood/key: unexpected EOF" || errs.CodeOf(got) != errs.Internal {
		t.Errorf("local peer: %v", got)
	}
	foreign := wire.FromError(wire.ForeignError(secret))
	if strings.Contains(foreign.Error(), "ada") || len(errs.MetaOf(foreign)) != 0 || errs.CodeOf(foreign) != errs.Internal {
		t.Errorf("foreign peer: %v %v", foreign, errs.MetaOf(foreign))
	}
	if got := wire.FromError(wire.ForeignError(errs.New(errs.NotFound, "no sandbox %q", "x"))); got.Error() != `no sandbox "x"` {
		t.Errorf("text for people is no defect: %v", got)
	}
}

func TestErrorsFitIntoHeaders(t *testing.T) {
	err := errs.New(errs.AlreadyExists, "taken: %s \xff", strings.Repeat("näme, ", 100_000))
	err = errs.With(errs.With(err, "names", strings.Repeat("x", 1<<20)), "bad", "\xff")
	info := wire.Info(err)
	size := len(info.GetMessage())
	for k, v := range info.GetMetadata() {
		size += len(k) + len(v)
		if !utf8.ValidString(v) {
			t.Errorf("%q is not valid UTF-8", k)
		}
	}
	if size > 13<<10 || !utf8.ValidString(info.GetMessage()) || !strings.HasSuffix(info.GetMessage(), "…") {
		t.Errorf("%d bytes, ends with %q", size, info.GetMessage()[len(info.GetMessage())-8:])
	}
	if got := wire.FromError(wire.Error(err)); errs.CodeOf(got) != errs.AlreadyExists {
		t.Errorf("came back as %v", errs.CodeOf(got))
	}
}

func TestErrorsPassThrough(t *testing.T) {
	if wire.Error(nil) != nil || wire.FromError(nil) != nil || wire.ForeignError(nil) != nil {
		t.Error("no error must stay none")
	}
	call := connect.NewError(connect.CodeUnavailable, io.EOF)
	sent := wire.Error(call) // of the library, without details
	if info := wire.Info(wire.FromError(sent)); connect.CodeOf(sent) != connect.CodeUnavailable || info.GetMessage() != "EOF" || errs.CodeOf(wire.FromError(strip(t, sent))) != errs.Unavailable {
		t.Errorf("%v with %v", sent, info)
	}
	if got := wire.Error(fmt.Errorf("send: %w", sent)); !errors.Is(got, sent) {
		t.Errorf("a wire error was wrapped again: %v", got)
	}
	ours := errs.New(errs.Stale, "late")
	if got := wire.FromError(ours); !errors.Is(got, ours) || errors.As(errors.Unwrap(got), new(*errs.Error)) {
		t.Error("an error with a code was wrapped again")
	}
	got := wire.FromError(connect.NewError(connect.CodeCanceled, context.Canceled))
	if errs.CodeOf(got) != errs.Canceled || !errors.Is(got, context.Canceled) {
		t.Errorf("the cause is lost: %v", got)
	}
	if got := wire.FromError(context.DeadlineExceeded); errs.CodeOf(got) != errs.DeadlineExceeded {
		t.Errorf("%v", errs.CodeOf(got))
	}
	// The outermost code wins also over a wire error below it.
	over := errs.New(errs.NotFound, "gone: %w", call)
	if connect.CodeOf(wire.Error(over)) != connect.CodeNotFound {
		t.Error("the code of a lower layer won")
	}
}

// A call whose daemon is killed says so in the same words and with the same
// code, at whatever point of the protocol it broke.
func TestABrokenConnectionIsUnavailable(t *testing.T) {
	reset := &net.OpError{Op: "read", Net: "unix", Err: syscall.ECONNRESET}
	for name, err := range map[string]error{
		"reset":    connect.NewError(connect.CodeUnknown, &url.Error{Op: "Post", URL: "http://localhost/x", Err: reset}),
		"canceled": connect.NewError(connect.CodeCanceled, reset),
		"envelope": connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("protocol error: incomplete envelope: %w", io.ErrUnexpectedEOF)),
		"eof":      connect.NewError(connect.CodeUnavailable, io.EOF),
	} {
		got := wire.FromError(err)
		if errs.CodeOf(got) != errs.Unavailable || !strings.Contains(got.Error(), "connection broke") {
			t.Errorf("%s: %v (code %s)", name, got, errs.CodeOf(got))
		}
	}
	for name, err := range map[string]error{
		"caller gone": connect.NewError(connect.CodeCanceled, context.Canceled),
		"too late":    connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded),
	} {
		if got := wire.FromError(err); strings.Contains(got.Error(), "connection broke") {
			t.Errorf("%s: %v", name, got)
		}
	}
}
