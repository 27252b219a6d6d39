package full_test

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	broodv1 "brood/api/brood/v1"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/internal/base/errs"
	"brood/internal/wire"
)

// fakeBatch is a batch and its events so far.
type fakeBatch struct {
	message *broodv1.Batch
	key     string
	events  []*daemonv1.ForkSandboxBatchResponse
	items   []*daemonv1.ForkBatchItem
	changed chan struct{} // closed and replaced with every event
	cancel  context.CancelFunc
}

type fakeForks struct{ f *fake }

// ForkSandboxBatch forks. Sources have a way of their own: of "flaky" fork 1
// fails, "stuck" makes one fork and then waits for the end, the connection to
// "dropped" is lost after two events, "far" is copied to another machine first,
// the books of a batch of "torn" are damaged when it is over.
func (s *fakeForks) ForkSandboxBatch(ctx context.Context, req *connect.Request[daemonv1.ForkSandboxBatchRequest], stream *connect.ServerStream[daemonv1.ForkSandboxBatchResponse]) error {
	b, err := s.f.begin(req.Msg, req.Header().Get(wire.HeaderBatchKey))
	if err != nil {
		return err
	}
	stream.ResponseHeader().Set(wire.HeaderBatchID, b.message.GetId())
	if err := stream.Send(nil); err != nil {
		return err
	}
	return s.f.play(ctx, b, 0, func(seq uint64, m *daemonv1.ForkSandboxBatchResponse) error {
		if strings.Contains(req.Msg.GetSource(), "dropped") && seq == 3 {
			s.f.log("dropped the connection of %s", b.message.GetId())
			return errs.New(errs.Unavailable, "the network is down")
		}
		return stream.Send(m)
	})
}

// begin checks a request whole and starts the batch.
func (f *fake) begin(req *daemonv1.ForkSandboxBatchRequest, key string) (*fakeBatch, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.batches {
		if b.key == key {
			return b, nil
		}
	}
	groups := req.GetGroups()
	if len(groups) == 0 {
		groups = []*daemonv1.ForkBatchGroup{{Source: req.GetSource(), Count: req.GetCount()}}
	}
	if on := req.GetOn(); on != "" && on != "local" && on != "auto" {
		return nil, errs.New(errs.NotFound, "no machine is called %q", on)
	}
	var items []*daemonv1.ForkBatchItem
	for g, group := range groups {
		source, err := f.source(group.GetSource())
		if err != nil {
			return nil, err
		}
		prefix := group.GetNamePrefix()
		if prefix == "" {
			prefix = req.GetNamePrefix()
		}
		if prefix == "" {
			prefix = f.id(source + "-k")
		}
		for n := range group.GetCount() {
			items = append(items, &daemonv1.ForkBatchItem{Index: uint32(len(items)), Group: uint32(g), Source: source, Name: fmt.Sprintf("%s-%d", prefix, n), Host: "local", Attempt: 1})
		}
	}
	var clashes []string
	for _, i := range items {
		if _, taken := f.sandboxes[i.GetName()]; taken {
			clashes = append(clashes, i.GetName())
		}
	}
	if len(clashes) > 0 {
		return nil, errs.New(errs.AlreadyExists, "these names are taken: %s", strings.Join(clashes, ", "))
	}
	ctx, cancel := context.WithCancel(f.group.Context())
	b := &fakeBatch{key: key, changed: make(chan struct{}), cancel: cancel, message: &broodv1.Batch{
		Id: f.id("b-"), State: broodv1.BatchState_BATCH_STATE_RUNNING, Request: req, CreatedAt: timestamppb.Now(), Total: uint32(len(items)),
	}}
	f.batches = append(f.batches, b)
	f.group.Go(b.message.GetId(), func(context.Context) error { return f.run(ctx, b, groups, items) })
	return b, nil
}

// run makes the forks of a batch.
func (f *fake) run(ctx context.Context, b *fakeBatch, groups []*daemonv1.ForkBatchGroup, items []*daemonv1.ForkBatchItem) error {
	for g, group := range groups {
		p := &daemonv1.ForkBatchPlacement{Group: uint32(g), Source: group.GetSource(), Host: "local", Count: group.GetCount(), Attempt: 1, Reason: "holds the checkpoint"}
		if p.NeedsSync = group.GetSource() == "far"; p.GetNeedsSync() {
			p.Host = "m2"
		}
		f.emit(b, &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Placement{Placement: p}})
		for done := uint64(0); p.GetNeedsSync() && done <= 10; done++ {
			sync := &daemonv1.SnapshotSyncProgress{Name: "far", Digest: "d", From: "m3", To: "m2", BytesDone: done * 1e6, BytesTotal: 10e6, BytesReused: 5e6, Done: done == 10, Verified: done == 10}
			f.emit(b, &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Sync{Sync: sync}})
		}
	}
	for _, i := range items {
		if i.GetSource() == "stuck" && i.GetIndex() == 1 {
			f.log("batch %s is stuck", b.message.GetId())
			<-ctx.Done()
		}
		f.emit(b, f.make(ctx, b, i))
	}
	s := &daemonv1.ForkBatchSummary{ElapsedMs: 1234, PerHost: map[string]uint32{}, PeakParallel: map[string]uint32{"local": 4}}
	for _, i := range items {
		if i.GetErrorCode() != "" {
			s.Failed++
			continue
		}
		s.Ok++
		s.PerHost[i.GetHost()]++
	}
	f.emit(b, &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Done{Done: s}})
	return nil
}

// make makes one fork.
func (f *fake) make(ctx context.Context, b *fakeBatch, i *daemonv1.ForkBatchItem) *daemonv1.ForkSandboxBatchResponse {
	f.mu.Lock()
	defer f.mu.Unlock()
	i.ElapsedMs, i.ForkMs = uint64(100+i.GetIndex()), uint64(40+i.GetIndex())
	r := &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Item{Item: i}}
	origin := &broodv1.ForkOrigin{Checkpoint: i.GetSource(), Digest: strings.Repeat("cd", 32), BatchId: b.message.GetId(), Index: i.GetIndex(), Uuid: "u-" + i.GetName()}
	box, err := f.fork(i.GetSource(), i.GetName(), origin)
	switch {
	case ctx.Err() != nil:
		delete(f.sandboxes, i.GetName())
		i.ErrorCode, i.Error = "fork_failed", "the batch was cancelled"
	case err != nil:
		i.ErrorCode, i.Error = "fork_failed", err.Error()
	case i.GetSource() == "flaky" && i.GetIndex() == 1:
		delete(f.sandboxes, i.GetName())
		i.ErrorCode, i.Error = "fork_failed", "its identity was not confirmed within 10s"
	default:
		i.Space, r.Sandbox = "local:"+i.GetName(), box.message()
	}
	return r
}

// emit writes an event down.
func (f *fake) emit(b *fakeBatch, m *daemonv1.ForkSandboxBatchResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b.events = append(b.events, m)
	b.message.LastSequence = uint64(len(b.events))
	if i := m.GetItem(); i != nil {
		b.items = append(b.items, i)
		if i.GetErrorCode() != "" {
			b.message.Failed++
		} else {
			b.message.Ok++
		}
	}
	if d := m.GetDone(); d != nil {
		if b.message.GetRequest().GetSource() == "torn" {
			b.message.Damaged, b.message.Note = true, "its books were damaged"
		}
		b.message.State, b.message.Summary, b.message.DoneAt = broodv1.BatchState_BATCH_STATE_DONE, d, timestamppb.Now()
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

// play sends the events of a batch after a sequence number, to the last.
func (f *fake) play(ctx context.Context, b *fakeBatch, after uint64, send func(uint64, *daemonv1.ForkSandboxBatchResponse) error) error {
	for seq := after; ; {
		f.mu.Lock()
		events, changed := b.events[seq:], b.changed
		f.mu.Unlock()
		for _, m := range events {
			seq++
			if err := send(seq, m); err != nil {
				return err
			}
			if m.GetDone() != nil {
				return nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-f.group.Context().Done():
			return errs.New(errs.Unavailable, "the daemon ends")
		}
	}
}

type fakeBatches struct{ f *fake }

func (f *fake) batch(prefix string) (*fakeBatch, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.batches {
		if strings.HasPrefix(b.message.GetId(), prefix) {
			return b, nil
		}
	}
	return nil, errs.New(errs.NotFound, "no batch is called %q", prefix)
}

func (s *fakeBatches) ListBatches(context.Context, *connect.Request[broodv1.ListBatchesRequest]) (*connect.Response[broodv1.ListBatchesResponse], error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	r := &broodv1.ListBatchesResponse{}
	for _, b := range s.f.batches {
		r.Batches = append([]*broodv1.Batch{b.message}, r.Batches...)
	}
	return connect.NewResponse(r), nil
}

func (s *fakeBatches) GetBatch(_ context.Context, req *connect.Request[broodv1.GetBatchRequest]) (*connect.Response[broodv1.GetBatchResponse], error) {
	b, err := s.f.batch(req.Msg.GetBatchId())
	if err != nil {
		return nil, err
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	return connect.NewResponse(&broodv1.GetBatchResponse{Batch: b.message, Items: b.items}), nil
}

func (s *fakeBatches) AttachBatch(ctx context.Context, req *connect.Request[broodv1.AttachBatchRequest], stream *connect.ServerStream[broodv1.AttachBatchResponse]) error {
	b, err := s.f.batch(req.Msg.GetBatchId())
	if err != nil {
		return err
	}
	s.f.log("attached %s after %d", b.message.GetId(), req.Msg.GetAfterSequence())
	return s.f.play(ctx, b, req.Msg.GetAfterSequence(), func(seq uint64, m *daemonv1.ForkSandboxBatchResponse) error {
		return stream.Send(&broodv1.AttachBatchResponse{Sequence: seq, Event: m})
	})
}

func (s *fakeBatches) CancelBatch(_ context.Context, req *connect.Request[broodv1.CancelBatchRequest]) (*connect.Response[broodv1.CancelBatchResponse], error) {
	b, err := s.f.batch(req.Msg.GetBatchId())
	if err != nil {
		return nil, err
	}
	b.cancel()
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	b.message.Cancelled = true
	if b.message.GetSummary() == nil {
		b.message.State = broodv1.BatchState_BATCH_STATE_CANCELLING
	}
	return connect.NewResponse(&broodv1.CancelBatchResponse{Batch: b.message}), nil
}
