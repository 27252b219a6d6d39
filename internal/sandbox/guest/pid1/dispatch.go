//go:build linux

package pid1

import (
	"context"
	"encoding/json"
	"io"
	"runtime"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/sandbox/guest/proto"
)

const arch = runtime.GOARCH

// call is one request and its stream.
type call struct {
	st    io.ReadWriteCloser
	req   proto.Request
	epoch uint64
}

// args reads the request's arguments.
func args[T any](c *call) (T, error) {
	var v T
	if len(c.req.Args) == 0 {
		return v, nil
	}
	if err := json.Unmarshal(c.req.Args, &v); err != nil {
		return v, errs.New(errs.InvalidArgument, "arguments of %q are not understood: %w", c.req.Op, err)
	}
	return v, nil
}

// answer runs f on the request's arguments and replies with what it returns.
func answer[T, R any](c *call, f func(T) (R, error)) {
	a, err := args[T](c)
	var result R
	if err == nil {
		result, err = f(a)
	}
	_ = reply(c.st, result, err) // when that fails the host is gone
}

// none is the arguments or result of operations that have none.
type none struct{}

// dispatch serves a request by its name.
func (s *Server) dispatch(ctx context.Context, c *call) {
	switch c.req.Op {
	case proto.OpHello:
		answer(c, func(a proto.HelloArgs) (proto.HelloResult, error) { return s.hello(a, c.epoch) })
	case proto.OpPing:
		answer(c, func(none) (proto.PingResult, error) {
			return proto.PingResult{NowNanos: time.Now().UnixNano()}, nil
		})
	case proto.OpStart:
		answer(c, func(a proto.StartArgs) (proto.StartResult, error) { return s.start(ctx, a) })
	case proto.OpWaitMain:
		waiting(ctx, c, func(ctx context.Context, _ none) (proto.ExitStatus, error) { return s.waitMain(ctx) })
	case proto.OpStop:
		s.serveStop(ctx, c)
	case proto.OpEnd:
		answer(c, func(none) (none, error) { return none{}, s.end(ctx) })
	case proto.OpFreeze:
		answer(c, func(a proto.FreezeArgs) (proto.FreezeResult, error) { return s.freeze(ctx, a) })
	case proto.OpThaw:
		answer(c, func(none) (none, error) { return none{}, s.thaw(ctx) })
	case proto.OpIdentity:
		answer(c, func(a proto.IdentityArgs) (proto.IdentityResult, error) { return s.renew(ctx, a) })
	case proto.OpIdentityInfo:
		answer(c, func(none) (proto.IdentityResult, error) { return s.identityInfo() })
	case proto.OpProtect:
		answer(c, func(a proto.ProtectArgs) (none, error) { return none{}, s.protect(ctx, a) })
	case proto.OpPs:
		answer(c, func(none) (proto.PsResult, error) { return s.ps() })
	case proto.OpStat:
		answer(c, s.stat)
	case proto.OpDial:
		s.serveDial(ctx, c)
	case proto.OpUsage:
		answer(c, func(none) (proto.UsageResult, error) { return usage() })
	case proto.OpPut:
		s.servePut(ctx, c)
	case proto.OpGet:
		s.serveGet(ctx, c)
	default:
		s.dispatchExec(ctx, c)
	}
}

// dispatchExec serves what is about an exec.
func (s *Server) dispatchExec(ctx context.Context, c *call) {
	switch c.req.Op {
	case proto.OpExec:
		s.serveExec(ctx, c)
	case proto.OpAttach:
		s.serveAttach(ctx, c)
	case proto.OpStdin:
		s.serveStdin(ctx, c)
	case proto.OpCloseStdin:
		waiting(ctx, c, func(ctx context.Context, a proto.IDArgs) (none, error) {
			x, err := s.exec(a.ID)
			if err != nil {
				return none{}, err
			}
			return none{}, x.closeStdin(ctx, s.gate)
		})
	case proto.OpResize:
		answer(c, func(a proto.ResizeArgs) (none, error) { return none{}, s.resize(ctx, a) })
	case proto.OpSignal:
		answer(c, func(a proto.SignalArgs) (none, error) { return none{}, s.signal(ctx, a) })
	case proto.OpExecList:
		answer(c, func(none) (proto.ExecListResult, error) { return s.execList(), nil })
	case proto.OpExecWait:
		waiting(ctx, c, func(ctx context.Context, a proto.IDArgs) (proto.ExitStatus, error) { return s.execWait(ctx, a.ID) })
	case proto.OpExecForget:
		answer(c, func(a proto.IDArgs) (none, error) { return none{}, s.execForget(a.ID) })
	default:
		_ = reply(c.st, nil, errs.New(errs.Unsupported, "the sandbox does not know %.40q: it was made by an older brood", c.req.Op))
	}
}

// waiting is answer for what may take long: its context ends when the host
// closes the stream.
func waiting[T, R any](ctx context.Context, c *call, f func(context.Context, T) (R, error)) {
	watched(ctx, c.st, func(ctx context.Context) {
		answer(c, func(a T) (R, error) { return f(ctx, a) })
	})
}

// watched runs f with a context that ends with the host's side of the stream,
// from which nothing more is expected.
func watched(ctx context.Context, st io.ReadWriteCloser, f func(context.Context)) {
	g := life.NewGroup(ctx)
	g.Go("watch", func(context.Context) error {
		var b [1]byte
		_, err := st.Read(b[:])
		if err == nil {
			err = io.ErrUnexpectedEOF // more than was agreed is as good as gone
		}
		return err
	})
	f(g.Context())
	_ = st.Close() // the host ends its side when it has the reply
	_ = g.Wait()   // its only error is that the host went
}
