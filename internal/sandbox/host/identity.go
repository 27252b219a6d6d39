package host

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox/guest"
	"brood/internal/sandbox/guest/proto"
)

// identity is what makes one sandbox differ from its siblings.
type identity struct {
	uuid  string
	batch id.Batch
	index int
}

// identify renews a sandbox's identity and has it confirmed from inside,
// within the limit (F31). Nobody gets a sandbox that did not confirm.
func (h *Host) identify(ctx context.Context, e *entry, g *guest.Client, who identity) error {
	ctx, cancel := context.WithTimeout(ctx, h.p.IdentityTimeout)
	defer cancel()
	name := string(e.view().Name)
	got, err := g.Identity(ctx, proto.IdentityArgs{
		Name: name, Hostname: name, Index: who.index, Batch: string(who.batch), UUID: who.uuid,
		Token: id.Random(32),
	})
	if err != nil {
		return fmt.Errorf("identity of %s was not confirmed: %w", name, err)
	}
	if got.Name != name || got.Hostname != name || got.UUID != who.uuid {
		return errs.New(errs.FailedPrecondition, "identity of %s was not confirmed: inside it is %s (host name %s, uuid %s)", name, got.Name, got.Hostname, got.UUID)
	}
	e.change(func(sb *Sandbox) { sb.Identity, sb.ConfirmedAt = &got, time.Now() })
	return nil
}

// newUUID draws a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails since Go 1.24
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
