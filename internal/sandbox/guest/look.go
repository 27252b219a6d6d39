package guest

import (
	"context"
	"net"

	"brood/internal/sandbox/guest/proto"
)

// Dial connects to a port of the sandbox's own loopback (IPv4), whatever
// network the sandbox has. Unavailable when nothing accepts there. The
// connection ends with ctx.
func (c *Client) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	s, err := c.open(ctx, proto.OpDial, proto.DialArgs{Port: port})
	if err != nil {
		return nil, err
	}
	if _, err := result[struct{}](s); err != nil {
		s.end()
		return nil, err
	}
	return dialled{s}, nil
}

// dialled is a stream as a connection: closing it lets go of its context.
type dialled struct{ *stream }

// Close ends both directions.
func (d dialled) Close() error {
	d.end()
	return nil
}

// Protect makes places read-only, and places inside them writable again, in
// the order given.
func (c *Client) Protect(ctx context.Context, places ...proto.Place) error {
	_, err := invoke[struct{}](ctx, c, proto.OpProtect, proto.ProtectArgs{Places: places})
	return err
}

// Usage returns what the sandbox uses now, in bytes.
func (c *Client) Usage(ctx context.Context) (memory uint64, err error) {
	r, err := invoke[proto.UsageResult](ctx, c, proto.OpUsage, nil)
	return r.Memory, err
}
