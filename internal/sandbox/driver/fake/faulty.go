package fake

import (
	"context"
	"errors"

	"brood/internal/base/id"
	"brood/internal/sandbox"
)

// Faulty returns a driver that is d with faults: a hook in before runs instead
// of nothing being done, one in after when all is done. An error of either is
// the result of the call; what was done is taken back, as the contract says.
func Faulty(d sandbox.Driver, before, after Hooks) sandbox.Driver {
	f := &faulty{Driver: d}
	for op, hook := range before {
		f.hooked.set(Before, op, hook)
	}
	for op, hook := range after {
		f.hooked.set(After, op, hook)
	}
	return f
}

// Nth returns a hook that fails the nth call, counted from 1, with err.
func Nth(n int, err error) Hook {
	return func(_ context.Context, c Call) error {
		if c.N == n {
			return err
		}
		return nil
	}
}

type faulty struct {
	sandbox.Driver
	hooked hooked
}

// around runs do between the hooks, and undo when the later one fails.
func (f *faulty) around(ctx context.Context, op Op, sb id.Sandbox, do, undo func() error) error {
	c := f.hooked.call(op, sb)
	if err := f.hooked.run(ctx, Before, c); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	if err := f.hooked.run(ctx, After, c); err != nil {
		return errors.Join(err, undo())
	}
	return nil
}

func nothing() error { return nil }

// begin is around for what makes a sandbox.
func (f *faulty) begin(ctx context.Context, op Op, sb id.Sandbox, do func() (sandbox.Channel, error)) (ch sandbox.Channel, err error) {
	err = f.around(ctx, op, sb, func() error {
		var err error
		ch, err = do()
		return err
	}, func() error {
		return errors.Join(ch.Close(), f.Driver.Destroy(context.WithoutCancel(ctx), sb))
	})
	if err != nil {
		return nil, err
	}
	return ch, nil
}

func (f *faulty) Start(ctx context.Context, p sandbox.StartParams) (sandbox.Channel, error) {
	return f.begin(ctx, OpStart, p.ID, func() (sandbox.Channel, error) { return f.Driver.Start(ctx, p) })
}

func (f *faulty) Restore(ctx context.Context, p sandbox.RestoreParams) (sandbox.Channel, error) {
	return f.begin(ctx, OpRestore, p.ID, func() (sandbox.Channel, error) { return f.Driver.Restore(ctx, p) })
}

func (f *faulty) Capture(ctx context.Context, sb id.Sandbox, dir string) error {
	return f.around(ctx, OpCapture, sb, func() error { return f.Driver.Capture(ctx, sb, dir) }, nothing)
}

func (f *faulty) Channel(ctx context.Context, sb id.Sandbox) (ch sandbox.Channel, err error) {
	err = f.around(ctx, OpChannel, sb, func() error {
		var err error
		ch, err = f.Driver.Channel(ctx, sb)
		return err
	}, func() error { return ch.Close() })
	if err != nil {
		return nil, err
	}
	return ch, nil
}

func (f *faulty) Destroy(ctx context.Context, sb id.Sandbox) error {
	return f.around(ctx, OpDestroy, sb, func() error { return f.Driver.Destroy(ctx, sb) }, nothing)
}

func (f *faulty) List(ctx context.Context) (all []sandbox.Live, err error) {
	err = f.around(ctx, OpList, "", func() error {
		var err error
		all, err = f.Driver.List(ctx)
		return err
	}, nothing)
	if err != nil {
		return nil, err
	}
	return all, nil
}
