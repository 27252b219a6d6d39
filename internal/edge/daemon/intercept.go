package daemon

import (
	"context"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	"brood/internal/base/errs"
	"brood/internal/wire"
)

// interceptor gives every error its form on the wire, and logs calls.
type interceptor struct{ log *slog.Logger }

// WrapUnary logs a call and translates its error.
func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		began := time.Now()
		resp, err := next(ctx, req)
		i.note(ctx, req.Spec().Procedure, began, err)
		if err != nil {
			return nil, wire.Error(err)
		}
		return resp, nil
	}
}

// WrapStreamingHandler is WrapUnary for streams.
func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		began := time.Now()
		err := next(ctx, conn)
		i.note(ctx, conn.Spec().Procedure, began, err)
		return wire.Error(err)
	}
}

// WrapStreamingClient leaves clients alone: there are none here.
func (i *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (i *interceptor) note(ctx context.Context, procedure string, began time.Time, err error) {
	level := slog.LevelDebug
	err = wire.FromError(err) // of the library, about a request that cannot be read
	if errs.Is(err, errs.Internal) || errs.Is(err, errs.DataLoss) {
		level = slog.LevelError
	}
	i.log.Log(ctx, level, "call", "procedure", procedure, "took", time.Since(began), "error", err)
}
