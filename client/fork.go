package client

import (
	"context"

	"connectrpc.com/connect"

	daemonv1 "brood/api/cua/daemon/v1"
	"brood/internal/wire"
)

// ForkManyOptions are the options of a batch; the zero value is the default of
// each.
type ForkManyOptions struct {
	// On says where: "local" (the default), "auto" or "host:<machine>".
	On string
	// GroupSize is how many forks of ForkMany make a group; 0: all.
	GroupSize uint32
	// MaxParallelPerHost is how many forks may be starting at once on a
	// machine; 0: 4.
	MaxParallelPerHost uint32
	// NamePrefix names forks <prefix>-<n>; empty: <source>-<random>-<n>.
	NamePrefix string
	// CPUs and MemoryMB are what each fork is counted as when placing; 0: 1
	// vCPU, and the checkpoint's memory.
	CPUs     uint32
	MemoryMB uint64
	// Retries is how often forks of a machine that failed are placed again; 0:
	// once.
	Retries uint32
	// NoRetry reports failed forks at once.
	NoRetry bool
	// Fallback is where machines get a checkpoint that no reachable machine
	// holds.
	Fallback *SnapshotFallbackOptions
	// Key makes the call idempotent: a second one with the same key is the
	// same batch. Empty: a key of its own.
	Key string
}

// ForkGroup is forks of one checkpoint that belong on one machine.
type ForkGroup struct {
	// Source is a checkpoint, or a sandbox of this machine.
	Source string
	Count  uint32
	// NamePrefix goes before the batch's.
	NamePrefix string
}

// SnapshotFallbackOptions is a copy of checkpoints outside the machines:
// S3Bucket or Dir, not both.
type SnapshotFallbackOptions struct {
	S3Bucket string
	// S3Prefix is the prefix of keys; empty: "cua-snapshots/".
	S3Prefix string
	// S3Region is empty for each machine's own default.
	S3Region string
	// S3Endpoint is an S3-compatible server; empty: AWS.
	S3Endpoint string
	// Dir is a folder that every machine mounts; "~" is each machine's home.
	Dir string
}

// ForkMany forks source count times. It returns when the daemon has taken the
// batch, which it does only when nothing about it is wrong; each fork is then
// an event. source is a checkpoint or a sandbox: that is checkpointed once,
// and the checkpoint goes with the last of its forks.
func (c *Client) ForkMany(ctx context.Context, source string, count uint32, o *ForkManyOptions) (*Batch, error) {
	req, key := o.request()
	req.Source, req.Count = source, count
	return c.start(ctx, req, key)
}

// ForkGroups is ForkMany for several sources.
func (c *Client) ForkGroups(ctx context.Context, groups []ForkGroup, o *ForkManyOptions) (*Batch, error) {
	req, key := o.request()
	for _, g := range groups {
		req.Groups = append(req.Groups, &daemonv1.ForkBatchGroup{Source: g.Source, Count: g.Count, NamePrefix: g.NamePrefix})
	}
	return c.start(ctx, req, key)
}

func (o *ForkManyOptions) request() (*daemonv1.ForkSandboxBatchRequest, string) {
	if o == nil {
		o = &ForkManyOptions{}
	}
	req := &daemonv1.ForkSandboxBatchRequest{
		On: o.On, GroupSize: o.GroupSize, MaxParallelPerHost: o.MaxParallelPerHost, NamePrefix: o.NamePrefix,
		Cpus: o.CPUs, MemoryMb: o.MemoryMB, Retries: o.Retries, NoRetry: o.NoRetry,
	}
	if f := o.Fallback; f != nil {
		req.Fallback = &daemonv1.SnapshotFallback{
			S3Bucket: f.S3Bucket, S3Prefix: f.S3Prefix, S3Region: f.S3Region, S3Endpoint: f.S3Endpoint, Dir: f.Dir,
		}
	}
	if o.Key != "" {
		return req, o.Key
	}
	return req, newKey()
}

// start asks for a batch until the daemon has taken or refused it. Asking
// again is safe because of the key.
func (c *Client) start(ctx context.Context, req *daemonv1.ForkSandboxBatchRequest, key string) (*Batch, error) {
	wait := c.patiently()
	for {
		b, err := c.tryStart(ctx, req, key)
		if err == nil {
			return b, nil
		}
		if ctx.Err() != nil || unreached(err) || !lost(err) {
			return nil, ended(ctx, err)
		}
		if err := wait.pause(ctx, err); err != nil {
			return nil, failed(err)
		}
	}
}

func (c *Client) tryStart(ctx context.Context, req *daemonv1.ForkSandboxBatchRequest, key string) (*Batch, error) {
	type stream = connect.ServerStreamForClient[daemonv1.ForkSandboxBatchResponse]
	var early *daemonv1.ForkSandboxBatchResponse // read in order to learn how the call went
	var id string
	s, cancel, err := open(ctx, func(life context.Context) (*stream, error) {
		r := connect.NewRequest(req)
		r.Header().Set(wire.HeaderBatchKey, key)
		s, err := c.forks.ForkSandboxBatch(life, r)
		if err != nil {
			return nil, err
		}
		if id = s.ResponseHeader().Get(wire.HeaderBatchID); id != "" {
			return s, nil
		}
		if !s.Receive() { // refused, or no answer at all
			err := streamEnd(s.Err())
			_ = s.Close() // the call failed already
			return nil, err
		}
		early = s.Msg()
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	var seq uint64
	f := &feed{cancel: cancel, shut: s.Close, receive: func() (uint64, *daemonv1.ForkSandboxBatchResponse, error) {
		m := early
		early = nil
		if m == nil {
			if !s.Receive() {
				return 0, nil, streamEnd(s.Err())
			}
			m = s.Msg()
		}
		seq++
		return seq, m, nil
	}}
	return &Batch{client: c, id: id, feed: f, items: map[uint32]*ForkBatchItem{}}, nil
}
