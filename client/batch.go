package client

import (
	"context"
	"iter"
	"maps"
	"slices"

	"connectrpc.com/connect"

	broodv1 "brood/api/brood/v1"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/internal/base/errs"
	"brood/internal/wire"
)

// Records of the protocol.
type (
	// ForkBatchItem is one fork, ready or failed.
	ForkBatchItem = daemonv1.ForkBatchItem
	// ForkBatchPlacement says where forks of a group went.
	ForkBatchPlacement = daemonv1.ForkBatchPlacement
	// SnapshotSyncProgress tells how far the copy of a checkpoint is.
	SnapshotSyncProgress = daemonv1.SnapshotSyncProgress
	// ForkBatchSummary is the end of a batch.
	ForkBatchSummary = daemonv1.ForkBatchSummary
)

// Event is one event of a batch: exactly one of Placement, Sync, Item and Done
// is set.
type Event struct {
	// Sequence numbers the events of a batch from 1.
	Sequence  uint64
	Placement *ForkBatchPlacement
	Sync      *SnapshotSyncProgress
	Item      *ForkBatchItem
	Done      *ForkBatchSummary
	// Sandbox comes with an Item that is ready on this machine.
	Sandbox *Sandbox

	message *daemonv1.ForkSandboxBatchResponse
}

// JSON returns the event as the command line shows it: one line, such as
// {"item":{…}}.
func (e *Event) JSON() ([]byte, error) { return wire.JSON(e.message) }

// Result is a whole batch.
type Result struct {
	// Items has every fork, by index.
	Items   []*ForkBatchItem
	Summary *ForkBatchSummary
}

// Batch is a batch of forks, running or over. It belongs to the daemon: Close
// and the end of a context stop the watching, not the forks. Use it from one
// goroutine at a time, and Close it unless it was read to its end.
type Batch struct {
	client  *Client
	id      string
	last    uint64 // sequence of the last event that was read
	first   uint64 // sequence before the first event that was read
	items   map[uint32]*ForkBatchItem
	summary *ForkBatchSummary
	feed    *feed // nil: to be attached
	closed  bool
}

// ID names the batch; it is known before the first event.
func (b *Batch) ID() string { return b.id }

// Close stops watching. It may be called at any time, also twice.
func (b *Batch) Close() {
	b.closed = true
	b.drop()
}

// Next returns the next event, the summary last, and nil after that. When ctx
// ends nothing is lost: the next call goes on. A lost connection is taken up
// again after the last event.
func (b *Batch) Next(ctx context.Context) (*Event, error) {
	wait := b.client.patiently()
	for b.summary == nil {
		e, err := b.receive(ctx)
		switch {
		case err == nil && e != nil:
			return e, nil
		case err == nil:
			continue // an event of a kind that a newer daemon has
		}
		b.drop()
		if ctx.Err() != nil || b.id == "" || !lost(err) {
			return nil, ended(ctx, err)
		}
		if err := wait.pause(ctx, err); err != nil {
			return nil, ended(ctx, err)
		}
	}
	return nil, nil
}

// Collect waits for the end and returns the whole batch, also when some or all
// of it was read with Next.
func (b *Batch) Collect(ctx context.Context) (*Result, error) {
	for {
		e, err := b.Next(ctx)
		if err != nil {
			return nil, err
		}
		if e == nil {
			break
		}
	}
	if b.first > 0 { // attached in the middle: the beginning is in the books
		r, err := b.client.GetBatch(ctx, b.id)
		if err != nil {
			return nil, err
		}
		return &Result{Items: r.GetItems(), Summary: b.summary}, nil
	}
	r := &Result{Summary: b.summary}
	for _, i := range slices.Sorted(maps.Keys(b.items)) {
		r.Items = append(r.Items, b.items[i])
	}
	return r, nil
}

// Events ranges over what is left of the batch, the summary last; it ends
// early with an error.
func (b *Batch) Events(ctx context.Context) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		for {
			e, err := b.Next(ctx)
			if e == nil && err == nil || !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// receive reads one message; it attaches first when there is no connection.
func (b *Batch) receive(ctx context.Context) (*Event, error) {
	if b.closed {
		return nil, errs.New(errs.FailedPrecondition, "batch %s is no longer watched: attach it again", b.id)
	}
	if b.feed == nil {
		f, err := b.client.attachFeed(ctx, b.id, b.last)
		if err != nil {
			return nil, err
		}
		b.feed = f
	}
	seq, m, err := b.feed.next(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case seq <= b.last:
		return nil, nil // known already
	case seq > b.last+1:
		return nil, errs.New(errs.DataLoss, "batch %s: events %d to %d are missing", b.id, b.last+1, seq-1)
	}
	b.last = seq
	return b.note(seq, m), nil
}

// note keeps what Collect returns.
func (b *Batch) note(seq uint64, m *daemonv1.ForkSandboxBatchResponse) *Event {
	e := &Event{Sequence: seq, Sandbox: m.GetSandbox(), message: m}
	switch v := m.GetEvent().(type) {
	case *daemonv1.ForkSandboxBatchResponse_Placement:
		e.Placement = v.Placement
	case *daemonv1.ForkSandboxBatchResponse_Sync:
		e.Sync = v.Sync
	case *daemonv1.ForkSandboxBatchResponse_Item:
		e.Item = v.Item
		b.items[v.Item.GetIndex()] = v.Item
	case *daemonv1.ForkSandboxBatchResponse_Done:
		e.Done = v.Done
		b.summary = v.Done
		b.drop()
	default:
		return nil
	}
	return e
}

func (b *Batch) drop() {
	if b.feed != nil {
		b.feed.close()
		b.feed = nil
	}
}

// AttachBatch watches a batch from its beginning, or after the event with
// sequence number after.
func (c *Client) AttachBatch(ctx context.Context, id string, after uint64) (*Batch, error) {
	r, err := c.GetBatch(ctx, id)
	if err != nil {
		return nil, err
	}
	return &Batch{client: c, id: r.GetBatch().GetId(), last: after, first: after, items: map[uint32]*ForkBatchItem{}}, nil
}

// ListBatches lists the batches that the daemon keeps, newest first.
func (c *Client) ListBatches(ctx context.Context) ([]*broodv1.Batch, error) {
	r, err := unary(ctx, c.batches.ListBatches, &broodv1.ListBatchesRequest{})
	return r.GetBatches(), err
}

// GetBatch returns a batch and its items so far, by index. The id may be cut
// short as long as one batch has it.
func (c *Client) GetBatch(ctx context.Context, id string) (*broodv1.GetBatchResponse, error) {
	return unary(ctx, c.batches.GetBatch, &broodv1.GetBatchRequest{BatchId: id})
}

// CancelBatch stops what has not started; what is ready stays.
func (c *Client) CancelBatch(ctx context.Context, id string) (*broodv1.Batch, error) {
	r, err := unary(ctx, c.batches.CancelBatch, &broodv1.CancelBatchRequest{BatchId: id})
	return r.GetBatch(), err
}

// feed is one connection that brings events of a batch.
type feed struct {
	receive func() (uint64, *daemonv1.ForkSandboxBatchResponse, error)
	cancel  context.CancelFunc
	shut    func() error
}

// open makes a stream whose life is not that of ctx; ctx bounds only f.
func open[T any](ctx context.Context, f func(context.Context) (T, error)) (T, context.CancelFunc, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	v, err := f(life)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		cancel()
	}
	return v, cancel, err
}

// next waits for the next event; the end of ctx ends the connection too.
func (f *feed) next(ctx context.Context) (uint64, *daemonv1.ForkSandboxBatchResponse, error) {
	stop := context.AfterFunc(ctx, f.cancel)
	defer stop()
	return f.receive()
}

func (f *feed) close() {
	f.cancel()
	_ = f.shut() // it was cancelled: that is all it can say
}

func (c *Client) attachFeed(ctx context.Context, id string, after uint64) (*feed, error) {
	req := connect.NewRequest(&broodv1.AttachBatchRequest{BatchId: id, AfterSequence: after})
	s, cancel, err := open(ctx, func(life context.Context) (*connect.ServerStreamForClient[broodv1.AttachBatchResponse], error) {
		return c.batches.AttachBatch(life, req)
	})
	if err != nil {
		return nil, err
	}
	return &feed{cancel: cancel, shut: s.Close, receive: func() (uint64, *daemonv1.ForkSandboxBatchResponse, error) {
		if !s.Receive() {
			return 0, nil, streamEnd(s.Err())
		}
		return s.Msg().GetSequence(), s.Msg().GetEvent(), nil
	}}, nil
}

// streamEnd is the error of a stream that ended before its last event.
func streamEnd(err error) error {
	if err == nil {
		return connect.NewError(connect.CodeUnavailable, errs.New(errs.Unavailable, "the daemon ended the stream before its last event"))
	}
	return err
}
