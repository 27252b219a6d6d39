package exec

import (
	"context"
	"errors"

	"brood/internal/base/id"
	"brood/internal/sandbox/host"
)

// ForkOne makes one fork without a batch of its own: of a checkpoint, or of a
// sandbox by a checkpoint that goes with the fork.
func (m *Manager) ForkOne(ctx context.Context, source string, p host.ForkParams) (_ host.Forked, err error) {
	f, err := m.findOne(source)
	if err != nil {
		return host.Forked{}, err
	}
	p.Checkpoint = f.cp.Name
	if f.sandbox != "" {
		b := id.NewBatch()
		release := m.p.Host.HoldBatch(b)
		defer func() {
			release()
			err = errors.Join(err, m.p.Host.DropUnused())
		}()
		c, err := m.p.Host.Capture(ctx, host.CaptureParams{Source: f.sandbox, Name: tempName(f.sandbox), Temporary: b})
		if err != nil {
			return host.Forked{}, err
		}
		p.Checkpoint = c.Checkpoint.Name
	}
	return m.p.Host.Fork(ctx, p)
}
