package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/sandbox/guest"
)

// restart: a daemon that is started again finds what runs, takes the channel
// over in the middle of what its predecessor said, and execs go on.
func restart(w *world) {
	src := w.start("src", "state")
	x := src.exec(guest.ExecArgs{ID: "ticks"}, "ticks", "/tmp/ticks")
	first, err := x.Next()
	w.check(err)
	src.numbered("/tmp/ticks")
	n := src.count()
	// The first daemon is gone without a word: its descriptors are closed.
	w.check(src.ch.Close())
	<-src.c.Done()
	d := w.Again()
	all, err := d.List(w.ctx)
	w.check(err)
	if len(all) != 1 || all[0].ID != "src" || !all[0].Running {
		w.t.Fatalf("after a restart there is %+v", all)
	}
	ch, err := d.Channel(w.ctx, "src")
	w.check(err)
	b, err := w.connect("src", src.magic, ch)
	w.check(err)
	if h := b.c.Hello(); h.Frozen || !h.Started || h.MainExit != nil {
		w.t.Errorf("it says %+v", h)
	}
	b.counting(n)
	again, err := b.c.Attach(w.ctx, guest.AttachArgs{ID: "ticks", Stdout: uint64(len(first.Data))})
	w.check(err)
	defer again.Close()
	text := string(first.Data)
	for lines := 0; lines < 3; lines++ {
		out, err := again.Next()
		w.check(err)
		if out.Stream != guest.Stdout || out.Offset != uint64(len(text)) {
			w.t.Fatalf("the stream goes on at %d, %d bytes were read", out.Offset, len(text))
		}
		text += string(out.Data)
	}
	if want := ticksText(len(text)); text != want {
		w.t.Errorf("over the restart the stream is %q, not %q", text, want)
	}
	// What the new one captures, it forks.
	w.Driver = d
	w.fork("fork", b.capture())
}

// ticksText is how a stream of numbered lines begins.
func ticksText(n int) string {
	text := ""
	for i := 1; len(text) < n; i++ {
		text += fmt.Sprintln(i)
	}
	return text[:n]
}

// twoDrivers: two at once on the same folders, as it happens when a daemon is
// started while another one still ends.
func twoDrivers(w *world) {
	one, two := w.Driver, w.Again()
	const each = 3
	name := func(i int) id.Sandbox { return id.Sandbox(fmt.Sprintf("sb-%d", i)) }
	boxes := make([]*box, 2*each)
	failed := life.Each(w.ctx, 2*each, 2*each, func(ctx context.Context, i int) error {
		d := one
		if i%2 == 1 {
			d = two
		}
		var err error
		boxes[i], err = w.tryStart(ctx, d, name(i))
		return err
	})
	w.check(errors.Join(failed...))
	// Each sees all, and can end what the other made.
	again, err := two.List(w.ctx)
	w.check(err)
	if len(again) != 2*each || len(w.ids()) != 2*each {
		w.t.Errorf("one sees %v, the other %v", w.ids(), again)
	}
	failed = life.Each(w.ctx, 2*each, 2*each, func(ctx context.Context, i int) error {
		d := two
		if i%2 == 1 {
			d = one
		}
		if _, err := boxes[i].c.Ping(ctx); err != nil {
			return err
		}
		return d.Destroy(ctx, name(i))
	})
	w.check(errors.Join(failed...))
	if left := w.ids(); len(left) != 0 {
		w.t.Errorf("%v are left", left)
	}
	w.check(two.Close(w.ctx))
	// The other one still works.
	b, err := w.tryStart(w.ctx, one, "after")
	w.check(err)
	_, err = b.c.Ping(w.ctx)
	w.check(err)
}

// manyAtOnce: restores of one image at the same time, and calls for all of
// them.
func manyAtOnce(w *world) {
	const forks = 8
	src := w.start("src", "state")
	sum := src.ask("heap", "4")
	im := src.capture()
	boxes := make([]*box, forks)
	failed := life.Each(w.ctx, forks, forks, func(ctx context.Context, i int) error {
		var err error
		boxes[i], err = w.tryRestore(ctx, w.Driver, id.Sandbox(fmt.Sprintf("fork-%d", i)), im)
		return err
	})
	w.check(errors.Join(failed...))
	for _, b := range boxes {
		b.goOn(im)
		b.want(sum, "sum")
		b.want("done", "write", "/tmp/mine", string(b.id))
	}
	for _, b := range boxes {
		b.want(string(b.id), "read", "/tmp/mine")
	}
	ids := w.ids()
	slices.Sort(ids)
	if len(ids) != forks+1 {
		w.t.Errorf("there are %v", ids)
	}
	failed = life.Each(w.ctx, forks, forks, func(ctx context.Context, i int) error {
		return w.Driver.Destroy(ctx, boxes[i].id)
	})
	w.check(errors.Join(failed...))
	src.counting(im.count)
}
