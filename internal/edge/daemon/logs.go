package daemon

import (
	"context"
	"errors"
	"io"
	"time"

	"connectrpc.com/connect"

	broodv1 "brood/api/brood/v1"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox"
	"brood/internal/sandbox/guest/logs"
)

type logService struct{ d *Daemon }

// logPeriod is how often a followed log is looked at: output is there within
// what a person notices.
const logPeriod = 100 * time.Millisecond

// GetLogs streams what a sandbox's command wrote.
func (s *logService) GetLogs(ctx context.Context, req *connect.Request[broodv1.GetLogsRequest], stream *connect.ServerStream[broodv1.GetLogsResponse]) error {
	name, err := nameOf("sandbox", req.Msg.GetSandbox())
	if err != nil {
		return err
	}
	sb, err := s.d.host.Get(name)
	if err != nil {
		return err
	}
	paths, _, err := s.d.host.Logs(name)
	if err != nil {
		return err
	}
	r, err := logs.Open(paths)
	if err != nil {
		return errs.New(errs.FailedPrecondition, "sandbox %s has no output yet: %w", name, err)
	}
	defer r.Close()
	out := &logSender{req: req.Msg, sandbox: sb.ID, send: stream.Send}
	if !req.Msg.GetFollow() {
		if err := r.Bound(); err != nil {
			return err
		}
	}
	if err := out.begin(r); err != nil {
		return err
	}
	ctx, cancel := s.d.using(ctx, req.Msg.GetSandbox())
	defer cancel()
	for {
		over := !req.Msg.GetFollow() || s.ended(name)
		if err := drain(r, out); err != nil {
			return err
		}
		if over {
			return out.flush()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(logPeriod):
		}
	}
}

// drain sends what there is now.
func drain(r *logs.Reader, out *logSender) error {
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := out.entry(e, r.At()); err != nil {
			return err
		}
	}
}

// ended reports whether nothing more will be written.
func (s *logService) ended(name id.Name) bool {
	sb, err := s.d.host.Get(name)
	return err != nil || sb.State != sandbox.Running && sb.State != sandbox.Provisioning
}
