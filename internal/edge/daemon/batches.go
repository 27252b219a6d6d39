package daemon

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"connectrpc.com/connect"

	broodv1 "brood/api/brood/v1"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox/batch/exec"
)

type batchService struct{ d *Daemon }

// ListBatches returns the batches there are, newest first.
func (s *batchService) ListBatches(context.Context, *connect.Request[broodv1.ListBatchesRequest]) (*connect.Response[broodv1.ListBatchesResponse], error) {
	resp := &broodv1.ListBatchesResponse{}
	for _, b := range s.d.batches.List() {
		resp.Batches = append(resp.Batches, batchMessage(b))
	}
	return connect.NewResponse(resp), nil
}

// GetBatch returns a batch and the forks that have ended.
func (s *batchService) GetBatch(_ context.Context, req *connect.Request[broodv1.GetBatchRequest]) (*connect.Response[broodv1.GetBatchResponse], error) {
	b, err := s.d.batch(req.Msg.GetBatchId())
	if err != nil {
		return nil, err
	}
	resp := &broodv1.GetBatchResponse{Batch: batchMessage(b)}
	for _, i := range b.Items() {
		resp.Items = append(resp.Items, itemMessage(i))
	}
	slices.SortFunc(resp.Items, func(x, y *daemonv1.ForkBatchItem) int { return cmp.Compare(x.GetIndex(), y.GetIndex()) })
	return connect.NewResponse(resp), nil
}

// AttachBatch replays a batch's events and follows it.
func (s *batchService) AttachBatch(ctx context.Context, req *connect.Request[broodv1.AttachBatchRequest], stream *connect.ServerStream[broodv1.AttachBatchResponse]) error {
	b, err := s.d.batch(req.Msg.GetBatchId())
	if err != nil {
		return err
	}
	return s.d.records(ctx, b, req.Msg.GetAfterSequence(), func(seq uint64, m *daemonv1.ForkSandboxBatchResponse) error {
		return stream.Send(&broodv1.AttachBatchResponse{Sequence: seq, Event: m})
	})
}

// CancelBatch stops what has not started.
func (s *batchService) CancelBatch(_ context.Context, req *connect.Request[broodv1.CancelBatchRequest]) (*connect.Response[broodv1.CancelBatchResponse], error) {
	b, err := s.d.batch(req.Msg.GetBatchId())
	if err != nil {
		return nil, err
	}
	if b, err = s.d.batches.Cancel(b.ID()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&broodv1.CancelBatchResponse{Batch: batchMessage(b)}), nil
}

// batch finds a batch by its id, or by a beginning of it that no other has.
func (d *Daemon) batch(ref string) (exec.Batch, error) {
	exact, err := d.batches.Get(id.Batch(ref))
	if err == nil || ref == "" {
		return exact, err
	}
	var found []exec.Batch
	var ids []string
	for _, b := range d.batches.List() {
		if strings.HasPrefix(string(b.ID()), ref) {
			found, ids = append(found, b), append(ids, string(b.ID()))
		}
	}
	switch len(found) {
	case 0:
		return exec.Batch{}, err
	case 1:
		return found[0], nil
	}
	all := strings.Join(ids, ",")
	return exec.Batch{}, errs.With(errs.New(errs.InvalidArgument, "several batches begin with %.80q: %s: write more of it", ref, all), "batches", all)
}

func batchMessage(b exec.Batch) *broodv1.Batch {
	i, ok, failed, last := b.Info()
	state := broodv1.BatchState_BATCH_STATE_RUNNING
	switch {
	case i.Summary != nil:
		state = broodv1.BatchState_BATCH_STATE_DONE
	case i.Cancelled:
		state = broodv1.BatchState_BATCH_STATE_CANCELLING
	}
	return &broodv1.Batch{
		Id: string(i.ID), State: state, Request: requestMessage(i.Request), CreatedAt: stamp(i.CreatedAt), DoneAt: stamp(i.DoneAt),
		Total: uint32(i.Total), Ok: uint32(ok), Failed: uint32(failed), LastSequence: last, Cancelled: i.Cancelled, Note: i.Note,
		Summary: summaryMessage(i.Summary), Damaged: i.Damaged,
	}
}
