package client_test

import (
	"context"
	"fmt"
	"sync"

	"connectrpc.com/connect"

	broodv1 "brood/api/brood/v1"
	"brood/api/brood/v1/broodv1connect"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/internal/base/errs"
	"brood/internal/wire"
)

// batchBook keeps batches whose events are all known when they start: a
// placement, an item per fork, the summary.
type batchBook struct {
	broodv1connect.UnimplementedBatchServiceHandler
	s *server

	mu     sync.Mutex // guards what follows
	logs   map[string][]*daemonv1.ForkSandboxBatchResponse
	byKey  map[string]string
	trip   func(stage string, n int) // called at stages of a stream; may cut connections
	held   int                       // events after this one wait for release
	free   chan struct{}
	hollow bool // send no batch id, as another daemon of the protocol
}

func newBatchBook(s *server) *batchBook {
	return &batchBook{s: s, logs: map[string][]*daemonv1.ForkSandboxBatchResponse{}, byKey: map[string]string{}, trip: func(string, int) {}, free: make(chan struct{})}
}

func (b *batchBook) ForkSandboxBatch(ctx context.Context, r *connect.Request[daemonv1.ForkSandboxBatchRequest], out *connect.ServerStream[daemonv1.ForkSandboxBatchResponse]) error {
	id, err := b.take(r)
	if err != nil {
		return err
	}
	b.trip("taken", 0)
	if !b.hollow {
		out.ResponseHeader().Set(wire.HeaderBatchID, id)
	}
	if err := out.Send(nil); err != nil {
		return err
	}
	b.trip("headers", 0)
	return b.follow(ctx, id, 0, func(_ uint64, e *daemonv1.ForkSandboxBatchResponse) error { return out.Send(e) })
}

func (b *batchBook) AttachBatch(ctx context.Context, r *connect.Request[broodv1.AttachBatchRequest], out *connect.ServerStream[broodv1.AttachBatchResponse]) error {
	return b.follow(ctx, r.Msg.GetBatchId(), r.Msg.GetAfterSequence(), func(n uint64, e *daemonv1.ForkSandboxBatchResponse) error {
		return out.Send(&broodv1.AttachBatchResponse{Sequence: n, Event: e})
	})
}

// take writes a batch into the book, or finds it by its key.
func (b *batchBook) take(r *connect.Request[daemonv1.ForkSandboxBatchRequest]) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Msg.GetCount() == 0 && len(r.Msg.GetGroups()) == 0 {
		return "", errs.With(errs.New(errs.InvalidArgument, "a batch of 0 forks: ask for at least 1"), "field", "count")
	}
	key := r.Header().Get(wire.HeaderBatchKey)
	if id, ok := b.byKey[key]; ok {
		return id, nil
	}
	id := fmt.Sprintf("b-%d", len(b.logs))
	b.byKey[key], b.logs[id] = id, script(r.Msg)
	return id, nil
}

func script(r *daemonv1.ForkSandboxBatchRequest) []*daemonv1.ForkSandboxBatchResponse {
	groups := r.GetGroups()
	if len(groups) == 0 {
		groups = []*daemonv1.ForkBatchGroup{{Source: r.GetSource(), Count: r.GetCount(), NamePrefix: r.GetNamePrefix()}}
	}
	var log []*daemonv1.ForkSandboxBatchResponse
	index := uint32(0)
	for g, group := range groups {
		log = append(log, &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Placement{Placement: &daemonv1.ForkBatchPlacement{
			Group: uint32(g), Source: group.GetSource(), Host: "local", Count: group.GetCount(), Attempt: 1,
		}}}, &daemonv1.ForkSandboxBatchResponse{ /* a kind of event that this client does not know */ })
		for i := range group.GetCount() {
			// The last ones end first, so that the order of items is not that of events.
			n := group.GetCount() - 1 - i
			name := fmt.Sprintf("%s-%d", group.GetNamePrefix(), n)
			log = append(log, &daemonv1.ForkSandboxBatchResponse{
				Event:   &daemonv1.ForkSandboxBatchResponse_Item{Item: &daemonv1.ForkBatchItem{Index: index + n, Group: uint32(g), Source: group.GetSource(), Name: name, Host: "local", Attempt: 1}},
				Sandbox: &daemonv1.Sandbox{Name: name},
			})
		}
		index += group.GetCount()
	}
	return append(log, &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Done{Done: &daemonv1.ForkBatchSummary{Ok: index}}})
}

func (b *batchBook) follow(ctx context.Context, id string, after uint64, send func(uint64, *daemonv1.ForkSandboxBatchResponse) error) error {
	b.mu.Lock()
	log, ok := b.logs[id]
	b.mu.Unlock()
	if !ok {
		return errs.New(errs.NotFound, "no batch %s", id)
	}
	for i, e := range log {
		if uint64(i) < after {
			continue
		}
		if b.held > 0 && i >= b.held {
			select {
			case <-b.free:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		b.trip("event", i)
		if err := send(uint64(i)+1, e); err != nil {
			return err
		}
		b.trip("sent", i)
	}
	return nil
}

func (b *batchBook) GetBatch(_ context.Context, r *connect.Request[broodv1.GetBatchRequest]) (*connect.Response[broodv1.GetBatchResponse], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	log, ok := b.logs[r.Msg.GetBatchId()]
	if !ok {
		return nil, errs.New(errs.NotFound, "no batch %s", r.Msg.GetBatchId())
	}
	res := &broodv1.GetBatchResponse{Batch: &broodv1.Batch{Id: r.Msg.GetBatchId()}}
	items := map[uint32]*daemonv1.ForkBatchItem{}
	for _, e := range log {
		if it := e.GetItem(); it != nil {
			items[it.GetIndex()] = it
		}
	}
	for i := range len(items) {
		res.Items = append(res.Items, items[uint32(i)])
	}
	return connect.NewResponse(res), nil
}

func (b *batchBook) ListBatches(context.Context, *connect.Request[broodv1.ListBatchesRequest]) (*connect.Response[broodv1.ListBatchesResponse], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	res := &broodv1.ListBatchesResponse{}
	for id := range b.logs {
		res.Batches = append(res.Batches, &broodv1.Batch{Id: id})
	}
	return connect.NewResponse(res), nil
}

func (b *batchBook) CancelBatch(_ context.Context, r *connect.Request[broodv1.CancelBatchRequest]) (*connect.Response[broodv1.CancelBatchResponse], error) {
	return connect.NewResponse(&broodv1.CancelBatchResponse{Batch: &broodv1.Batch{Id: r.Msg.GetBatchId(), State: broodv1.BatchState_BATCH_STATE_CANCELLING, Cancelled: true}}), nil
}
