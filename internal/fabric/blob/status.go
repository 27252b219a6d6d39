package blob

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"brood/internal/base/errs"
)

// wireCodes says how every code travels.
var wireCodes = map[errs.Code]codes.Code{
	errs.InvalidArgument:    codes.InvalidArgument,
	errs.NotFound:           codes.NotFound,
	errs.AlreadyExists:      codes.AlreadyExists,
	errs.FailedPrecondition: codes.FailedPrecondition,
	errs.ResourceExhausted:  codes.ResourceExhausted,
	errs.Unavailable:        codes.Unavailable,
	errs.Canceled:           codes.Canceled,
	errs.DeadlineExceeded:   codes.DeadlineExceeded,
	errs.Unauthenticated:    codes.Unauthenticated,
	errs.PermissionDenied:   codes.PermissionDenied,
	errs.Stale:              codes.Aborted,
	errs.DataLoss:           codes.DataLoss,
	errs.Unsupported:        codes.Unimplemented,
	errs.InsufficientDisk:   codes.ResourceExhausted,
	errs.Internal:           codes.Internal,
}

// ourCodes says what a status means to us.
var ourCodes = map[codes.Code]errs.Code{
	codes.Canceled:           errs.Canceled,
	codes.Unknown:            errs.Internal,
	codes.InvalidArgument:    errs.InvalidArgument,
	codes.DeadlineExceeded:   errs.DeadlineExceeded,
	codes.NotFound:           errs.NotFound,
	codes.AlreadyExists:      errs.AlreadyExists,
	codes.PermissionDenied:   errs.PermissionDenied,
	codes.ResourceExhausted:  errs.ResourceExhausted,
	codes.FailedPrecondition: errs.FailedPrecondition,
	codes.Aborted:            errs.Stale,
	codes.OutOfRange:         errs.InvalidArgument,
	codes.Unimplemented:      errs.Unsupported,
	codes.Internal:           errs.Internal,
	codes.Unavailable:        errs.Unavailable,
	codes.DataLoss:           errs.DataLoss,
	codes.Unauthenticated:    errs.Unauthenticated,
}

// Status is err as the protocol tells it.
func Status(err error) *status.Status {
	if err == nil {
		return status.New(codes.OK, "")
	}
	if s, ok := status.FromError(err); ok {
		return s
	}
	c, ok := wireCodes[errs.CodeOf(err)]
	if !ok {
		c = codes.Internal
	}
	return status.New(c, err.Error())
}

// fromStatus is what the other side's answer means.
func fromStatus(s *status.Status) error {
	if s == nil || s.Code() == codes.OK {
		return nil
	}
	c, ok := ourCodes[s.Code()]
	if !ok {
		c = errs.Internal
	}
	return errs.New(c, "%.1000s", s.Message())
}

// fromRPC is what the error of a call means. An end of the context is told as
// that, whatever was going on.
func fromRPC(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if e := ctx.Err(); e != nil {
		return context.Cause(ctx)
	}
	var ours *errs.Error
	if errors.As(err, &ours) {
		return err
	}
	if s, ok := status.FromError(err); ok {
		return fromStatus(s)
	}
	return errs.New(errs.Unavailable, "%w", err)
}

// retryable says that trying again may help, and how long to wait at least.
func retryable(err error) (wait time.Duration, ok bool) {
	s, isStatus := status.FromError(err)
	if !isStatus {
		return 0, false
	}
	for _, d := range s.Details() {
		if info, is := d.(*errdetails.RetryInfo); is {
			return info.GetRetryDelay().AsDuration(), true
		}
	}
	return 0, s.Code() == codes.Unavailable || s.Code() == codes.Aborted
}
