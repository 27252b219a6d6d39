package daemon

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	broodv1 "brood/api/brood/v1"
	"brood/internal/base/id"
	"brood/internal/base/life"
)

// telling is how often a long verification says how far it is.
const telling = 250 * time.Millisecond

// VerifyCheckpoint reads all of a checkpoint.
func (s *checkpointService) VerifyCheckpoint(ctx context.Context, req *connect.Request[broodv1.VerifyCheckpointRequest], stream *connect.ServerStream[broodv1.VerifyCheckpointResponse]) error {
	name, err := id.ParseName("checkpoint", req.Msg.GetName())
	if err != nil {
		return err
	}
	cp, err := s.d.lookup(string(name))
	if err != nil {
		return err
	}
	var read atomic.Int64
	var failed error // ended gives it over
	ended := make(chan struct{})
	g := life.NewGroup(ctx)
	g.Go("verify", func(ctx context.Context) error {
		defer close(ended)
		failed = s.d.cps.Verify(ctx, name, &read)
		return nil
	})
	tick := time.NewTicker(telling)
	defer tick.Stop()
	for gone := false; !gone; {
		select {
		case <-ended:
			gone = true
		case <-tick.C:
			// A caller that went away ends ctx, and with it the work.
			_ = stream.Send(&broodv1.VerifyCheckpointResponse{Event: &broodv1.VerifyCheckpointResponse_Progress{
				Progress: &broodv1.VerifyCheckpointProgress{BytesDone: uint64(read.Load()) / 2, BytesTotal: uint64(cp.Size())},
			}})
		}
	}
	if err := errors.Join(failed, g.Wait()); err != nil {
		return err
	}
	return stream.Send(&broodv1.VerifyCheckpointResponse{Event: &broodv1.VerifyCheckpointResponse_Result{Result: &broodv1.VerifyCheckpointResult{
		Checkpoint: s.d.checkpointMessage(cp), Files: uint32(len(cp.Manifest.Files)), Bytes: uint64(cp.Size()),
	}}})
}
