package fake

import (
	"context"
	"encoding/hex"
	"errors"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox"
	"brood/internal/sandbox/guest/proto"
)

// Name is the driver's word in records and on the wire.
const Name = "fake"

// Driver implements sandbox.Driver on a World.
type Driver struct{ w *World }

var _ sandbox.Driver = (*Driver)(nil)

// Name returns "fake".
func (d *Driver) Name() string { return Name }

// Runtime returns the World's runtime.
func (d *Driver) Runtime() id.Runtime { return d.w.runtime }

// making is what Start and Restore have in common.
type making struct {
	op    Op
	id    id.Sandbox
	root  sandbox.Root
	magic string
	files sandbox.Files
	fill  func(*machine) error // sets the machine's state
}

// Start boots a sandbox with nothing in it but a few folders.
func (d *Driver) Start(ctx context.Context, p sandbox.StartParams) (sandbox.Channel, error) {
	return d.begin(ctx, making{op: OpStart, id: p.ID, root: p.Root, magic: p.Magic, files: p.Files,
		fill: func(m *machine) error { m.s = fresh(p.Hostname); return nil }})
}

// Restore makes a sandbox go on from what Capture saved.
func (d *Driver) Restore(ctx context.Context, p sandbox.RestoreParams) (sandbox.Channel, error) {
	if p.Runtime != d.w.runtime {
		return nil, errs.New(errs.FailedPrecondition, "runtime %s is not here", p.Runtime)
	}
	return d.begin(ctx, making{op: OpRestore, id: p.ID, root: p.Root, magic: p.Magic, files: p.Files,
		fill: func(m *machine) error { return m.load(p.Dir, p.Runtime) }})
}

func (d *Driver) begin(ctx context.Context, p making) (_ sandbox.Channel, err error) {
	magic, err := p.check()
	if err != nil {
		return nil, err
	}
	c := d.w.hooked.call(p.op, p.id)
	if err := d.w.hooked.run(ctx, Before, c); err != nil {
		return nil, err
	}
	b, err := d.w.reserve(p.id)
	if err != nil {
		return nil, err
	}
	defer func() {
		b.settle()
		if err != nil {
			err = errors.Join(err, d.w.destroy(context.WithoutCancel(ctx), b))
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	if err := d.w.hooked.run(ctx, Half, c); err != nil {
		return nil, err
	}
	m, err := newMachine(d.w, b, magic, p.files)
	if err != nil {
		return nil, err
	}
	if err := p.fill(m); err != nil {
		return nil, errors.Join(err, m.close())
	}
	m.boot()
	if err := d.w.put(b, m); err != nil {
		return nil, errors.Join(err, m.close())
	}
	if err := d.w.hooked.run(ctx, After, c); err != nil {
		return nil, err
	}
	return m.open()
}

func (p *making) check() (magic []byte, err error) {
	if !id.Plain(string(p.id)) {
		return nil, errs.New(errs.InvalidArgument, "sandbox id %.80q is not one", p.id)
	}
	if (p.root.EROFS == "") == (p.root.Host == nil) {
		return nil, errs.New(errs.InvalidArgument, "root: want exactly one of an EROFS image and a host folder")
	}
	magic, err = hex.DecodeString(p.magic)
	if err != nil || len(magic) != proto.MagicSize {
		return nil, errs.New(errs.InvalidArgument, "magic is not %d bytes in hex", proto.MagicSize)
	}
	return magic, nil
}

// Capture writes a sandbox's state into dir. The guest must be frozen: a
// caller that forgot has a defect that only shows now and then elsewhere.
func (d *Driver) Capture(ctx context.Context, sb id.Sandbox, dir string) error {
	c := d.w.hooked.call(OpCapture, sb)
	if err := d.w.hooked.run(ctx, Before, c); err != nil {
		return err
	}
	m, err := d.w.machine(sb)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.box.ctx, cancel)()
	half := d.w.hooked.run(ctx, Half, c)
	if err := m.save(dir, d.w.runtime); err != nil {
		return err
	}
	if half != nil {
		if err := cut(dir); err != nil || !errors.Is(half, errCut) {
			return errors.Join(half, err)
		}
		return nil
	}
	return d.w.hooked.run(ctx, After, c)
}

// Channel returns one more handle. A session on it takes the place of those
// on others.
func (d *Driver) Channel(ctx context.Context, sb id.Sandbox) (sandbox.Channel, error) {
	c := d.w.hooked.call(OpChannel, sb)
	if err := d.w.hooked.run(ctx, Before, c); err != nil {
		return nil, err
	}
	m, err := d.w.machine(sb)
	if err != nil {
		return nil, err
	}
	return m.open()
}

// Destroy ends a sandbox and frees its id.
func (d *Driver) Destroy(ctx context.Context, sb id.Sandbox) error {
	c := d.w.hooked.call(OpDestroy, sb)
	if err := d.w.hooked.run(ctx, Before, c); err != nil {
		return err
	}
	b, err := d.w.box(sb)
	if err != nil {
		return nil //nolint:nilerr // gone is what was asked for
	}
	if err := d.w.destroy(ctx, b); err != nil {
		return err
	}
	return d.w.hooked.run(ctx, After, c)
}

// Wait returns when the sandbox has ended.
func (d *Driver) Wait(ctx context.Context, sb id.Sandbox) error {
	b, err := d.w.box(sb)
	if err != nil {
		return err
	}
	select {
	case <-b.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// List returns every sandbox, half made ones included.
func (d *Driver) List(ctx context.Context) ([]sandbox.Live, error) {
	if err := d.w.hooked.run(ctx, Before, d.w.hooked.call(OpList, "")); err != nil {
		return nil, err
	}
	return d.w.list(), nil
}

// Close does nothing: the sandboxes are the World's.
func (d *Driver) Close(context.Context) error { return nil }
