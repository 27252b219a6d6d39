package wire

import (
	"strings"

	"connectrpc.com/connect"

	daemonv1 "brood/api/cua/daemon/v1"
	"brood/internal/base/errs"
)

// form is what a code looks like on the wire.
type form struct {
	status connect.Code
	reason daemonv1.DaemonErrorReason
}

// forms maps every code. The pairs are distinct, so that a code can be told
// from status and reason alone. The protocol has no reason for some codes;
// they have the nearest one, and the status makes the difference.
var forms = map[errs.Code]form{
	errs.InvalidArgument:    {connect.CodeInvalidArgument, daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_INVALID_ARGUMENT},
	errs.NotFound:           {connect.CodeNotFound, daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_NOT_FOUND},
	errs.AlreadyExists:      {connect.CodeAlreadyExists, daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_INVALID_ARGUMENT},
	errs.FailedPrecondition: {connect.CodeFailedPrecondition, daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_RUNTIME},
	errs.ResourceExhausted:  {connect.CodeResourceExhausted, daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_RUNTIME},
	errs.Unavailable:        {connect.CodeUnavailable, daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_RUNTIME},
	errs.Canceled:           {connect.CodeCanceled, daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_CANCELLED},
	errs.DeadlineExceeded:   {connect.CodeDeadlineExceeded, daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_TIMEOUT},
	errs.Unauthenticated:    {connect.CodeUnauthenticated, daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_UNAUTHENTICATED},
	errs.PermissionDenied:   {connect.CodePermissionDenied, daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_UNAUTHENTICATED},
	errs.Stale:              {connect.CodeAborted, daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_RUNTIME},
	errs.DataLoss:           {connect.CodeDataLoss, daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_RUNTIME},
	errs.Unsupported:        {connect.CodeUnimplemented, daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_UNSUPPORTED},
	errs.InsufficientDisk:   {connect.CodeResourceExhausted, daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_INSUFFICIENT_DISK},
	errs.Internal:           {connect.CodeInternal, daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_INTERNAL},
}

// byStatus says what a status means when it comes without a reason.
var byStatus = map[connect.Code]errs.Code{
	connect.CodeCanceled:           errs.Canceled,
	connect.CodeUnknown:            errs.Internal,
	connect.CodeInvalidArgument:    errs.InvalidArgument,
	connect.CodeDeadlineExceeded:   errs.DeadlineExceeded,
	connect.CodeNotFound:           errs.NotFound,
	connect.CodeAlreadyExists:      errs.AlreadyExists,
	connect.CodePermissionDenied:   errs.PermissionDenied,
	connect.CodeResourceExhausted:  errs.ResourceExhausted,
	connect.CodeFailedPrecondition: errs.FailedPrecondition,
	connect.CodeAborted:            errs.Stale,
	connect.CodeOutOfRange:         errs.InvalidArgument,
	connect.CodeUnimplemented:      errs.Unsupported,
	connect.CodeInternal:           errs.Internal,
	connect.CodeUnavailable:        errs.Unavailable,
	connect.CodeDataLoss:           errs.DataLoss,
	connect.CodeUnauthenticated:    errs.Unauthenticated,
}

// byReason says what a reason means when the status does not say it better.
// UNSPECIFIED has no row: the status decides.
var byReason = map[daemonv1.DaemonErrorReason]errs.Code{
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_INVALID_ARGUMENT:            errs.InvalidArgument,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_NOT_FOUND:                   errs.NotFound,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_PROVIDER_NOT_CONFIGURED:     errs.Unsupported,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_UNSUPPORTED:                 errs.Unsupported,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_SPACESD_NOT_AVAILABLE:       errs.Unavailable,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_TIMEOUT:                     errs.DeadlineExceeded,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_FLEET:                       errs.Unavailable,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_RUNTIME:                     errs.FailedPrecondition,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_ENV:                         errs.Unavailable,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_HTTP:                        errs.Unavailable,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_INTERNAL:                    errs.Internal,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_UNAUTHENTICATED:             errs.Unauthenticated,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_CAPABILITY_MISSING:          errs.Unsupported,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_HOST_CAPABILITY_MISSING:     errs.Unsupported,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_TELEPORT_REFUSED:            errs.FailedPrecondition,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_POOL_SPEC_MISMATCH:          errs.FailedPrecondition,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_CLAIM_SECRETS_NOT_DELIVERED: errs.FailedPrecondition,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_AMBIGUOUS_SANDBOX:           errs.InvalidArgument,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_INSUFFICIENT_DISK:           errs.InsufficientDisk,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_INVALID_PLACEMENT:           errs.InvalidArgument,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_FLEET_ADMISSION_DENIED:      errs.PermissionDenied,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_CLOUD_CREDIT_EXHAUSTED:      errs.ResourceExhausted,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_CANCELLED:                   errs.Canceled,
	daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_CLOUD:                       errs.Unavailable,
}

// formOf returns the wire form of an error with this code and these facts. The
// protocol has finer reasons for two kinds of bad arguments; the facts that it
// asks for there are what tells them.
func formOf(code errs.Code, meta map[string]string) form {
	f, ok := forms[code]
	if !ok {
		f = forms[errs.Internal]
	}
	if code == errs.InvalidArgument {
		if _, ok := meta[MetaCandidates]; ok {
			f.reason = daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_AMBIGUOUS_SANDBOX
		} else if _, ok := meta[MetaAxis]; ok {
			f.reason = daemonv1.DaemonErrorReason_DAEMON_ERROR_REASON_INVALID_PLACEMENT
		}
	}
	return f
}

// codeOf is the way back: the exact code when the peer is brood, else the
// status where it agrees with the reason, else the reason.
func codeOf(status connect.Code, info *daemonv1.DaemonErrorInfo) errs.Code {
	byStatus, ok := byStatus[status]
	if !ok {
		byStatus = errs.Internal
	}
	if info == nil {
		return byStatus
	}
	if code, ok := byWord[info.GetMetadata()[MetaCode]]; ok {
		return code
	}
	code, known := byReason[info.GetReason()]
	if !known || forms[byStatus].reason == info.GetReason() {
		return byStatus
	}
	return code
}

var byWord = func() map[string]errs.Code {
	m := map[string]errs.Code{}
	for _, c := range errs.Codes() {
		m[word(c)] = c
	}
	return m
}()

// word is a code as programs read it: "not_found".
func word(c errs.Code) string { return strings.ReplaceAll(c.String(), " ", "_") }
