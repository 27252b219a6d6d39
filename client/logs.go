package client

import (
	"context"
	"iter"

	"connectrpc.com/connect"

	broodv1 "brood/api/brood/v1"
)

// LogOptions say which part of the output.
type LogOptions struct {
	// Tail is how many of the last lines; nil: all that is kept.
	Tail *uint32
	// Follow goes on as more is written, until the sandbox ends.
	Follow bool
	// Timestamps brings the time with each piece, which is then whole lines.
	Timestamps bool
	// Stream is which output; unspecified: both.
	Stream broodv1.LogStream
}

// Logs ranges over what the command of a sandbox wrote; it ends early with an
// error. A lost connection is taken up again where it was.
func (c *Client) Logs(ctx context.Context, sandbox string, o LogOptions) iter.Seq2[*broodv1.GetLogsResponse, error] {
	return func(yield func(*broodv1.GetLogsResponse, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		wait := c.patiently()
		req := &broodv1.GetLogsRequest{Sandbox: sandbox, Tail: o.Tail, Follow: o.Follow, Timestamps: o.Timestamps, Stream: o.Stream}
		for {
			s, err := c.logs.GetLogs(ctx, connect.NewRequest(req))
			if err == nil {
				for s.Receive() {
					wait = c.patiently()
					req.After = s.Msg().GetNext()
					if !yield(s.Msg(), nil) {
						return
					}
				}
				if err = s.Err(); err == nil {
					return
				}
			}
			if never := unreached(err) && wait.began.IsZero(); ctx.Err() != nil || never || !lost(err) {
				yield(nil, ended(ctx, err))
				return
			}
			if err := wait.pause(ctx, err); err != nil {
				yield(nil, failed(err))
				return
			}
		}
	}
}
