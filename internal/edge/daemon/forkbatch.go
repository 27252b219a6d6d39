package daemon

import (
	"context"

	"connectrpc.com/connect"

	daemonv1 "brood/api/cua/daemon/v1"
	"brood/internal/sandbox/batch/exec"
	"brood/internal/wire"
)

type forkBatchService struct{ d *Daemon }

// ForkSandboxBatch begins a batch and streams its events. The batch is the
// daemon's: it goes on when the caller goes away.
func (s *forkBatchService) ForkSandboxBatch(ctx context.Context, req *connect.Request[daemonv1.ForkSandboxBatchRequest], stream *connect.ServerStream[daemonv1.ForkSandboxBatchResponse]) error {
	b, err := s.d.batches.Start(ctx, requestOf(req.Msg), req.Header().Get(wire.HeaderBatchKey))
	if err != nil {
		return err
	}
	stream.ResponseHeader().Set(wire.HeaderBatchID, string(b.ID()))
	if err := stream.Send(nil); err != nil { // the header goes before the first event
		return err
	}
	return s.d.records(ctx, b, 0, func(_ uint64, m *daemonv1.ForkSandboxBatchResponse) error { return stream.Send(m) })
}

// records sends a batch's events until the summary, the caller or the daemon
// ends.
func (d *Daemon) records(ctx context.Context, b exec.Batch, after uint64, send func(uint64, *daemonv1.ForkSandboxBatchResponse) error) error {
	ctx, cancel := d.streaming(ctx)
	defer cancel()
	for r, err := range b.Records(ctx, after) {
		if err != nil {
			return err
		}
		if err := send(r.Seq, d.eventMessage(r)); err != nil {
			return err
		}
	}
	return nil
}

// using is streaming for a call that uses a sandbox as long as it goes on.
func (d *Daemon) using(ctx context.Context, ref string) (context.Context, context.CancelFunc) {
	ctx, cancel := d.streaming(ctx)
	name, err := nameOf("sandbox", ref)
	if err != nil {
		return ctx, cancel
	}
	release := d.host.Attend(name)
	return ctx, func() { cancel(); release() }
}

// streaming ends a call's context also when the daemon is told to stop: a
// stream without end must not hold it.
func (d *Daemon) streaming(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(d.streams, cancel)
	return ctx, func() { unhook(); cancel() }
}
