package wire

import (
	"connectrpc.com/connect"

	daemonv1 "brood/api/cua/daemon/v1"
	"brood/internal/base/errs"
)

// statuses maps every code. Together with the reason of package errs they are
// distinct, so that a code can be told from the two alone.
var statuses = map[errs.Code]connect.Code{
	errs.InvalidArgument:    connect.CodeInvalidArgument,
	errs.NotFound:           connect.CodeNotFound,
	errs.AlreadyExists:      connect.CodeAlreadyExists,
	errs.FailedPrecondition: connect.CodeFailedPrecondition,
	errs.ResourceExhausted:  connect.CodeResourceExhausted,
	errs.Unavailable:        connect.CodeUnavailable,
	errs.Canceled:           connect.CodeCanceled,
	errs.DeadlineExceeded:   connect.CodeDeadlineExceeded,
	errs.Unauthenticated:    connect.CodeUnauthenticated,
	errs.PermissionDenied:   connect.CodePermissionDenied,
	errs.Stale:              connect.CodeAborted,
	errs.DataLoss:           connect.CodeDataLoss,
	errs.Unsupported:        connect.CodeUnimplemented,
	errs.InsufficientDisk:   connect.CodeResourceExhausted,
	errs.Internal:           connect.CodeInternal,
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

// statusOf returns the status of an error with this code.
func statusOf(code errs.Code) connect.Code {
	if s, ok := statuses[code]; ok {
		return s
	}
	return connect.CodeInternal
}

// reasonOf returns the reason of an error with this code and these facts.
func reasonOf(code errs.Code, meta map[string]string) daemonv1.DaemonErrorReason {
	return daemonv1.DaemonErrorReason(daemonv1.DaemonErrorReason_value["DAEMON_ERROR_REASON_"+errs.Reason(code, meta)])
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
	if !known || reasonOf(byStatus, nil) == info.GetReason() {
		return byStatus
	}
	return code
}

var byWord = func() map[string]errs.Code {
	m := map[string]errs.Code{}
	for _, c := range errs.Codes() {
		m[c.Word()] = c
	}
	return m
}()
