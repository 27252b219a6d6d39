package drivertest

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/sandbox"
	"brood/internal/sandbox/guest/proto"
)

// refusals: what cannot be done is refused with its code and changes nothing.
func refusals(w *world) {
	src := w.start("src", "state")
	im := src.capture()
	bad := func(change func(*sandbox.RestoreParams)) error {
		p := sandbox.RestoreParams{ID: "fork", Dir: im.dir, Runtime: w.Driver.Runtime(), Root: w.Root, Hostname: "fork", Magic: im.magic}
		var done func()
		var err error
		p.Files, done, err = w.files("fork")
		w.check(err)
		defer done()
		change(&p)
		ch, err := w.Driver.Restore(w.ctx, p)
		if err == nil {
			w.check(ch.Close())
		}
		return err
	}
	_, again := w.tryStart(w.ctx, w.Driver, "src")
	_, channel := w.Driver.Channel(w.ctx, "nobody")
	for what, c := range map[string]struct {
		err  error
		want errs.Code
	}{
		"start what runs":         {again, errs.AlreadyExists},
		"restore over what runs":  {bad(func(p *sandbox.RestoreParams) { p.ID = "src" }), errs.AlreadyExists},
		"restore without runtime": {bad(func(p *sandbox.RestoreParams) { p.Runtime = id.Runtime(strings.Repeat("0", 64)) }), errs.FailedPrecondition},
		"restore without a root":  {bad(func(p *sandbox.RestoreParams) { p.Root = sandbox.Root{} }), errs.InvalidArgument},
		"save nobody":             {w.Driver.Capture(w.ctx, "nobody", w.empty()), errs.NotFound},
		"reach nobody":            {channel, errs.NotFound},
		"wait for nobody":         {w.Driver.Wait(w.ctx, "nobody"), errs.NotFound},
	} {
		if got := errs.CodeOf(c.err); got != c.want {
			w.t.Errorf("%s: %v (%v), want %v", what, c.err, got, c.want)
		}
	}
	if all := w.ids(); len(all) != 1 || all[0] != "src" {
		w.t.Errorf("refused requests left %v", all)
	}
	src.counting(im.count)
}

// destroy works in every state and any number of times.
func destroy(w *world) {
	src := w.start("src", "state")
	im := src.capture()
	w.fork("fork", im)
	frozen, err := w.tryRestore(w.ctx, w.Driver, "frozen", im)
	w.check(err)
	ended := w.start("ended")
	_, err = ended.c.Stop(w.ctx, 0)
	w.check(err)
	w.check(w.Driver.Wait(w.ctx, "ended"))
	w.check(w.HalfMake(w.ctx, "half"))
	w.check(frozen.c.Close())
	for _, sb := range []id.Sandbox{"fork", "frozen", "ended", "half", "never-was"} {
		for range 2 {
			if err := w.Driver.Destroy(w.ctx, sb); err != nil {
				w.t.Errorf("destroy %s: %v", sb, err)
			}
		}
		if w.has(sb) {
			w.t.Errorf("%s is there after it was destroyed", sb)
		}
	}
	src.counting(im.count)
	// The id is free again.
	w.fork("fork", im)
}

// destroyDuring: it may come during any other call, ends that, and nothing is
// left.
func destroyDuring(w *world) {
	src := w.start("src", "state")
	src.ask("heap", "64")
	im := src.capture()
	for _, delay := range []time.Duration{0, 20 * time.Millisecond, 70 * time.Millisecond} {
		var finished atomic.Bool
		g := life.NewGroup(w.ctx)
		g.Go("restore", func(ctx context.Context) error {
			defer finished.Store(true)
			b, err := w.tryRestore(ctx, w.Driver, "fork", im)
			if err == nil {
				_ = b.c.Close() // it may be gone already
			}
			return nil // both ends are right
		})
		w.pause(delay)
		w.check(w.Driver.Destroy(w.ctx, "fork"))
		early := !finished.Load()
		w.check(g.Wait())
		// A restore that had not begun when it was destroyed goes through.
		w.check(w.Driver.Destroy(w.ctx, "fork"))
		if w.has("fork") {
			w.t.Errorf("a fork destroyed %s into its restore (restore was under way: %t) is there", delay, early)
		}
	}
	for _, delay := range []time.Duration{0, 15 * time.Millisecond} {
		f := w.fork("fork", im)
		f.freeze()
		dir := w.empty()
		g := life.NewGroup(w.ctx)
		g.Go("capture", func(ctx context.Context) error {
			_ = w.Driver.Capture(ctx, "fork", dir) // both ends are right
			return nil
		})
		w.pause(delay)
		w.check(w.Driver.Destroy(w.ctx, "fork"))
		w.check(g.Wait())
		if w.has("fork") {
			w.t.Errorf("a fork destroyed %s into its capture is there", delay)
		}
	}
	src.counting(im.count)
}

// pause lets a call get on for a while: where it then is, is chance, and any
// place is right.
func (w *world) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
	}
}

// wait returns when a sandbox ends, in whatever way.
func wait(w *world) {
	for what, end := range map[string]func(*box){
		"its guest ends":   func(b *box) { _, err := b.c.Stop(w.ctx, 0); w.check(err) },
		"it is killed":     func(b *box) { w.check(w.Kill(w.ctx, b.id)) },
		"it was destroyed": func(b *box) { w.check(w.Driver.Destroy(w.ctx, b.id)) },
	} {
		b := w.start("src", "state")
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		if err := w.Driver.Wait(ctx, b.id); !errs.Is(err, errs.Canceled) {
			w.t.Errorf("wait for a sandbox that runs, by a caller that is gone: %v", err)
		}
		waiting := make(chan struct{})
		var got error
		g := life.NewGroup(w.ctx)
		g.Go("wait", func(ctx context.Context) error {
			close(waiting)
			got = w.Driver.Wait(ctx, b.id)
			return nil
		})
		<-waiting
		end(b)
		w.check(g.Wait())
		if got != nil && (what != "it was destroyed" || !errs.Is(got, errs.NotFound)) {
			w.t.Errorf("wait until %s: %v", what, got)
		}
		// The connection notices too.
		select {
		case <-b.c.Done():
		case <-w.ctx.Done():
			w.t.Errorf("the channel stays open after %s", what)
		}
		if what != "it was destroyed" {
			all, err := w.Driver.List(w.ctx)
			w.check(err)
			if len(all) != 1 || all[0] != (sandbox.Live{ID: "src"}) {
				w.t.Errorf("after %s there is %+v", what, all)
			}
			if err := w.Driver.Capture(w.ctx, "src", w.empty()); err == nil {
				w.t.Errorf("a sandbox was captured after %s", what)
			}
		}
		w.check(w.Driver.Destroy(w.ctx, b.id))
	}
}

// halfMade: what a killed daemon leaves is listed, does not run, and goes.
func halfMade(w *world) {
	w.check(w.HalfMake(w.ctx, "half"))
	d := w.Again()
	all, err := d.List(w.ctx)
	w.check(err)
	if len(all) != 1 || all[0] != (sandbox.Live{ID: "half"}) {
		w.t.Errorf("list %+v", all)
	}
	if err := d.Capture(w.ctx, "half", w.empty()); err == nil {
		w.t.Error("half a sandbox was captured")
	}
	w.check(d.Destroy(w.ctx, "half"))
	if w.has("half") {
		w.t.Error("it is there after it was destroyed")
	}
	b, err := w.tryStart(w.ctx, d, "half")
	w.check(err)
	_, err = b.c.Ping(w.ctx)
	w.check(err)
	w.check(d.Close(w.ctx))
	_, err = b.c.Ping(w.ctx)
	w.check(err)
}

// names: every id that package id can make, and more of the same kind, works;
// others are refused before anything is done.
func names(w *world) {
	for _, sb := range []id.Sandbox{"0", "a", "a--b", "9-", id.Sandbox(strings.Repeat("x", 64)), id.NewSandbox()} {
		b, err := w.tryStart(w.ctx, w.Driver, sb)
		if err != nil {
			w.t.Errorf("start %q: %v", sb, err)
			continue
		}
		_, err = b.c.Ping(w.ctx)
		w.check(err)
		w.check(w.Driver.Destroy(w.ctx, sb))
	}
	for _, sb := range []id.Sandbox{"", "..", "../x", "a/b", "A", "a b", "a\x00", "é", id.Sandbox(strings.Repeat("x", 65))} {
		ch, err := w.Driver.Start(w.ctx, sandbox.StartParams{ID: sb, Root: w.Root, Hostname: "x", Magic: id.Random(proto.MagicSize)})
		if err == nil {
			w.check(ch.Close())
		}
		if !errs.Is(err, errs.InvalidArgument) {
			w.t.Errorf("start %q: %v", sb, err)
		}
	}
	if all := w.ids(); len(all) != 0 {
		w.t.Errorf("%q are left", all)
	}
}

// cancelled: when the caller goes away in the middle, nothing is left.
func cancelled(w *world) {
	src := w.start("src", "state")
	im := src.capture()
	for what, make := range map[string]func(context.Context) (*box, error){
		"start":   func(ctx context.Context) (*box, error) { return w.tryStart(ctx, w.Driver, "gone") },
		"restore": func(ctx context.Context) (*box, error) { return w.tryRestore(ctx, w.Driver, "gone", im) },
	} {
		for _, after := range []time.Duration{0, 5 * time.Millisecond, 40 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(w.ctx, after)
			_, err := make(ctx)
			cancel()
			if err == nil {
				w.check(w.Driver.Destroy(w.ctx, "gone")) // it was quicker
				continue
			}
			if !errs.Is(err, errs.DeadlineExceeded) {
				w.t.Errorf("%s, given up after %s: %v", what, after, err)
			}
			if w.has("gone") {
				w.t.Errorf("a %s given up after %s left something", what, after)
			}
		}
	}
	src.counting(im.count)
	w.fork("gone", im)
}
