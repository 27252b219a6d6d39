package guest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/proto"
)

// clockTolerance is how far a fork's wall clock may be off (F31).
const clockTolerance = 100 * time.Millisecond

// Freeze stops all user processes. After it the channel is quiet until the
// client speaks. For a capture set Capture: then nothing but Thaw lets them go
// on, neither here nor in a fork; a daemon that adopts a sandbox calls Thaw.
func (c *Client) Freeze(ctx context.Context, a FreezeArgs) (FreezeResult, error) {
	s, err := c.open(ctx, proto.OpFreeze, a)
	if err != nil {
		return FreezeResult{}, err
	}
	defer s.end()
	r, err := result[FreezeResult](s)
	if err != nil {
		return r, err
	}
	// The guest's last word on this stream is its end.
	var b [1]byte
	for {
		if _, err := s.Read(b[:]); err != nil {
			return r, s.ctx.Err()
		}
	}
}

// Thaw lets user processes go on; for a fork it is the hand-over. It may be
// called when nothing is frozen.
func (c *Client) Thaw(ctx context.Context) error {
	_, err := invoke[struct{}](ctx, c, proto.OpThaw, nil)
	return err
}

// Identity gives the sandbox an identity and confirms from inside that it has
// it. Entropy and MachineID are drawn when empty; the clock is measured and
// stepped here. No error means confirmed: host name, uuid, token, entropy and
// clock are as they should be; the rest is told in Renewed.
func (c *Client) Identity(ctx context.Context, a IdentityArgs) (IdentityResult, error) {
	if len(a.Entropy) == 0 {
		a.Entropy = make([]byte, 2*proto.MinEntropy)
		rand.Read(a.Entropy) // never fails since Go 1.24
	}
	if a.MachineID == "" {
		var b [16]byte
		rand.Read(b[:]) // never fails since Go 1.24
		a.MachineID = hex.EncodeToString(b[:])
	}
	before := time.Now()
	now, err := c.Ping(ctx)
	if err != nil {
		return IdentityResult{}, err
	}
	a.ClockStepNanos = int64(clockStep(before, now, time.Now()))
	before = time.Now()
	r, err := invoke[IdentityResult](ctx, c, proto.OpIdentity, a)
	if err != nil {
		return r, err
	}
	if off := clockStep(before, time.Unix(0, r.NowNanos), time.Now()); off != 0 {
		return r, errs.New(errs.FailedPrecondition, "the sandbox's clock is off by %s and cannot be set", -off)
	}
	if r.Hostname != a.Hostname || r.UUID != a.UUID {
		return r, errs.New(errs.Internal, "the sandbox says it is %q (%s), not %q (%s)", r.Hostname, r.UUID, a.Hostname, a.UUID)
	}
	return r, nil
}

// clockStep returns by how much a clock that showed now at some moment between
// before and after must be moved; 0 unless it is surely off.
func clockStep(before, now, after time.Time) time.Duration {
	// Wall clocks are compared, so the monotonic readings must go.
	before, after = before.Round(0), after.Round(0)
	half := after.Sub(before) / 2
	off := now.Sub(before.Add(half))
	if off.Abs()-half <= clockTolerance {
		return 0
	}
	return -off
}

// IdentityInfo returns the identity the sandbox was given last.
func (c *Client) IdentityInfo(ctx context.Context) (IdentityResult, error) {
	return invoke[IdentityResult](ctx, c, proto.OpIdentityInfo, nil)
}
