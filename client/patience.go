package client

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"brood/internal/base/errs"
)

// lost reports whether err says that the connection was lost, or that the
// daemon is going: what it did goes on and can be taken up again. What the
// daemon itself said is final.
func lost(err error) bool {
	var call *connect.Error
	if !errors.As(err, &call) {
		return false // ours, of no call
	}
	switch call.Code() {
	case connect.CodeUnavailable, connect.CodeCanceled:
		return true
	case connect.CodeResourceExhausted, connect.CodeUnimplemented, connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return false // the client's own limits, or a peer that is no daemon
	default:
		return !connect.IsWireError(err)
	}
}

// patience spaces the attempts to take something up again, and ends them when
// nothing came of it for too long.
type patience struct {
	client *Client
	limit  time.Duration
	began  time.Time
	wait   time.Duration
}

func (c *Client) patiently() patience { return patience{client: c, limit: c.patience} }

// goneAfter is how long a daemon that is started anew by others may be away.
const goneAfter = time.Second

// bringBack starts a daemon where that is the client's business and none came
// by itself.
func (p *patience) bringBack(ctx context.Context, err error) error {
	if p.client.revive == nil || !unreached(err) || time.Since(p.began) <= goneAfter {
		return nil
	}
	p.client.reviving.Lock()
	defer p.client.reviving.Unlock()
	return p.client.revive(ctx)
}

// pause waits before the next attempt. It returns an error when ctx ends or
// patience does; err is what the last attempt failed with.
func (p *patience) pause(ctx context.Context, err error) error {
	if p.began.IsZero() {
		p.began, p.wait = time.Now(), 5*time.Millisecond
	}
	if err := p.bringBack(ctx, err); err != nil {
		return err
	}
	if spent := time.Since(p.began); spent+p.wait > p.limit {
		return errs.New(errs.Unavailable, "the connection to the daemon was lost and did not come back within %s: %w", p.limit, err)
	}
	t := time.NewTimer(p.wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
	}
	p.wait = min(2*p.wait, time.Second)
	return nil
}
