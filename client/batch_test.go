package client_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"brood/client"
	"brood/internal/base/errs"
)

// check reads a batch of n forks to its end and proves that nothing is lost or
// repeated.
func check(t *testing.T, b *client.Batch, n int) {
	t.Helper()
	var seqs []uint64
	items := map[uint32]bool{}
	var done bool
	for e, err := range b.Events(t.Context()) {
		if err != nil {
			t.Fatalf("after %v: %v", seqs, err)
		}
		seqs = append(seqs, e.Sequence)
		if e.Item != nil {
			if items[e.Item.GetIndex()] || e.Sandbox.GetName() != e.Item.GetName() {
				t.Errorf("item %d twice, or with a wrong sandbox", e.Item.GetIndex())
			}
			items[e.Item.GetIndex()] = true
		}
		if done {
			t.Errorf("event %d after done", e.Sequence)
		}
		done = e.Done != nil
	}
	if !slices.IsSorted(seqs) || !done || len(items) != n || len(seqs) != n+2 {
		t.Errorf("sequences %v, %d items, done %v", seqs, len(items), done)
	}
	r, err := b.Collect(t.Context())
	if err != nil || len(r.Items) != n || r.Summary.GetOk() != uint32(n) {
		t.Fatalf("collect: %v, %v", r, err)
	}
	for i, it := range r.Items {
		if it.GetIndex() != uint32(i) {
			t.Errorf("item %d has index %d", i, it.GetIndex())
		}
	}
	if e, err := b.Next(t.Context()); e != nil || err != nil {
		t.Errorf("after the end: %v, %v", e, err)
	}
}

func TestForkMany(t *testing.T) {
	s := serve(t)
	c := s.dial(t)
	b, err := c.ForkMany(t.Context(), "base", 5, &client.ForkManyOptions{NamePrefix: "w"})
	if err != nil {
		t.Fatal(err)
	}
	if b.ID() == "" {
		t.Error("the id must be known before the first event")
	}
	first, err := b.Next(t.Context())
	if err != nil || first.Placement.GetCount() != 5 {
		t.Fatalf("%v, %v", first, err)
	}
	line, err := first.JSON()
	if err != nil || string(line) != `{"placement":{"group":0,"source":"base","host":"local","count":5,"attempt":1,"needs_sync":false,"reason":""}}` {
		t.Errorf("%s, %v", line, err)
	}
	r, err := b.Collect(t.Context()) // after some Next
	if err != nil || len(r.Items) != 5 || r.Items[4].GetName() != "w-4" {
		t.Fatalf("%v, %v", r, err)
	}
	again, err := c.AttachBatch(t.Context(), b.ID(), 0)
	if err != nil {
		t.Fatal(err)
	}
	check(t, again, 5)
	late, err := c.AttachBatch(t.Context(), b.ID(), 4)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := late.Next(t.Context()); err != nil || e.Sequence != 5 {
		t.Errorf("%v, %v", e, err)
	}
	if r, err := late.Collect(t.Context()); err != nil || len(r.Items) != 5 {
		t.Errorf("attached late, collect is still whole: %v, %v", r, err)
	}
}

func TestForkGroupsSendsEveryOption(t *testing.T) {
	s := serve(t)
	c := s.dial(t)
	b, err := c.ForkGroups(t.Context(), []client.ForkGroup{{Source: "a", Count: 2, NamePrefix: "x"}, {Source: "b", Count: 3}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Collect(t.Context())
	if err != nil || len(r.Items) != 5 || r.Items[4].GetGroup() != 1 || r.Items[1].GetName() != "x-1" {
		t.Errorf("%v, %v", r, err)
	}
	if l, err := c.ListBatches(t.Context()); err != nil || len(l) != 1 {
		t.Errorf("%v, %v", l, err)
	}
	if l, err := c.CancelBatch(t.Context(), b.ID()); err != nil || !l.GetCancelled() {
		t.Errorf("%v, %v", l, err)
	}
}

func TestRefusedBatchIsNotTriedAgain(t *testing.T) {
	s := serve(t)
	c := s.dial(t)
	_, err := c.ForkMany(t.Context(), "base", 0, nil)
	want(t, err, errs.InvalidArgument, "at least 1")
	if n := s.count("/cua.daemon.v1.ForkBatchService/ForkSandboxBatch"); n != 1 {
		t.Errorf("asked %d times", n)
	}
	_, err = c.AttachBatch(t.Context(), "b-99", 0)
	want(t, err, errs.NotFound, "b-99")
}

// TestLostConnections cuts the connection at every stage of a batch in turn.
func TestLostConnections(t *testing.T) {
	const n = 4
	type cut struct {
		stage string
		n     int
	}
	cuts := []cut{{"taken", 0}, {"headers", 0}}
	for i := range n + 3 {
		cuts = append(cuts, cut{"event", i}, cut{"sent", i})
	}
	for _, k := range cuts {
		t.Run(fmt.Sprint(k.stage, k.n), func(t *testing.T) {
			s := serve(t)
			var times atomic.Int32
			s.batches.trip = func(stage string, n int) {
				if stage == k.stage && n == k.n && times.Add(1) <= 2 {
					s.drop()
				}
			}
			b, err := s.dial(t).ForkMany(t.Context(), "base", n, &client.ForkManyOptions{NamePrefix: "w"})
			if err != nil {
				t.Fatal(err)
			}
			check(t, b, n)
			// After the last event the caller is done, and need not see the cut.
			if last := (cut{"sent", n + 2}); k != last && times.Load() == 0 {
				t.Error("nothing was cut")
			}
			if len(s.batches.logs) != 1 {
				t.Errorf("%d batches were made", len(s.batches.logs))
			}
		})
	}
}

func TestDaemonStartsAnewInTheMiddle(t *testing.T) {
	s := serve(t)
	s.batches.held = 3
	c := s.dial(t)
	b, err := c.ForkMany(t.Context(), "base", 6, &client.ForkManyOptions{NamePrefix: "w"})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := b.Next(t.Context()); err != nil || e.Placement == nil {
		t.Fatal(e, err)
	}
	s.stop()
	close(s.batches.free)
	s.start()
	r, err := b.Collect(t.Context())
	if err != nil || len(r.Items) != 6 {
		t.Fatalf("%v, %v", r, err)
	}
}

// A watcher that can start a daemon does so when none is there, and loses
// nothing.
func TestDaemonIsStartedInTheMiddle(t *testing.T) {
	s := serve(t)
	s.batches.held = 3
	c := s.dial(t)
	b, err := c.ForkMany(t.Context(), "base", 6, &client.ForkManyOptions{NamePrefix: "w"})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := b.Next(t.Context()); err != nil || e.Placement == nil {
		t.Fatal(e, err)
	}
	s.stop()
	close(s.batches.free)
	started := 0
	c.WhenGone(func(context.Context) error {
		started++
		s.start()
		return nil
	})
	r, err := b.Collect(t.Context())
	if err != nil || len(r.Items) != 6 || started != 1 {
		t.Fatalf("%v, %v, started %d times", r, err, started)
	}
}

func TestEndOfContextLosesNothing(t *testing.T) {
	s := serve(t)
	s.batches.held = 2
	c := s.dial(t)
	start, done := context.WithCancel(t.Context())
	b, err := c.ForkMany(start, "base", 3, &client.ForkManyOptions{NamePrefix: "w"})
	if err != nil {
		t.Fatal(err)
	}
	done() // that bounded the start only
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err = b.Next(ctx)
		if err == nil {
			_, err = b.Next(ctx)
		}
		cancel()
		want(t, err, errs.DeadlineExceeded, "")
	}
	close(s.batches.free)
	r, err := b.Collect(t.Context())
	if err != nil || len(r.Items) != 3 {
		t.Fatalf("%v, %v", r, err)
	}
}

func TestPatienceEnds(t *testing.T) {
	s := serve(t)
	s.batches.held = 1
	c, err := client.Dial(t.Context(), client.Options{SocketPath: s.socket, Patience: 30 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b, err := c.ForkMany(t.Context(), "base", 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s.stop()
	for err == nil {
		_, err = b.Next(t.Context())
	}
	want(t, err, errs.Unavailable, "did not come back")
}

// TestOtherDaemons: one that sends no batch id can be read as long as the
// connection holds.
func TestOtherDaemons(t *testing.T) {
	s := serve(t)
	s.batches.hollow = true
	c := s.dial(t)
	b, err := c.ForkMany(t.Context(), "base", 3, &client.ForkManyOptions{NamePrefix: "w"})
	if err != nil || b.ID() != "" {
		t.Fatal(b.ID(), err)
	}
	check(t, b, 3)
	s.batches.held = 2
	b, err = c.ForkMany(t.Context(), "base", 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s.drop()
	for err == nil {
		_, err = b.Next(t.Context())
	}
	if errs.CodeOf(err) == errs.InvalidArgument {
		t.Errorf("%v", err)
	}
}

func TestSameKeySameBatch(t *testing.T) {
	s := serve(t)
	c := s.dial(t)
	var ids []string
	for range 2 {
		b, err := c.ForkMany(t.Context(), "base", 1, &client.ForkManyOptions{Key: "nightly"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, b.ID())
		b.Close()
		b.Close()
		if _, err := b.Next(t.Context()); errs.CodeOf(err) != errs.FailedPrecondition {
			t.Errorf("a closed batch: %v", err)
		}
	}
	if ids[0] != ids[1] {
		t.Errorf("%v", ids)
	}
}

// TestLargeAnswers: gRPC's own limit is 4 MiB.
func TestLargeAnswers(t *testing.T) {
	const n = 600
	s := serve(t)
	c := s.dial(t)
	b, err := c.ForkMany(t.Context(), "base", n, &client.ForkManyOptions{NamePrefix: strings.Repeat("n", 5<<20/n)})
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	r, err := c.GetBatch(t.Context(), b.ID())
	if err != nil || len(r.GetItems()) != n {
		t.Errorf("%d items, %v", len(r.GetItems()), err)
	}
}
