package life_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"brood/internal/base/life"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGroupStopsSiblingsOnErrorAndNamesIt(t *testing.T) {
	g := life.NewGroup(t.Context())
	g.Go("waiter", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	g.Go("failer", func(context.Context) error { return io.ErrUnexpectedEOF })
	err := g.Wait()
	if !errors.Is(err, io.ErrUnexpectedEOF) || err.Error() != "failer: unexpected EOF" {
		t.Fatalf("err = %v", err)
	}
}

func TestGroupStopIsNoError(t *testing.T) {
	g := life.NewGroup(t.Context())
	g.Go("waiter", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestEachBoundsAndIndexes(t *testing.T) {
	var now, peak atomic.Int32
	results := life.Each(t.Context(), 50, 3, func(_ context.Context, i int) error {
		n := now.Add(1)
		for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
		}
		defer now.Add(-1)
		if i == 7 {
			return io.EOF
		}
		return nil
	})
	for i, err := range results {
		if (err != nil) != (i == 7) {
			t.Errorf("result %d = %v", i, err)
		}
	}
	if peak.Load() > 3 {
		t.Errorf("%d ran at once", peak.Load())
	}
}

func TestEachAfterCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	block := make(chan struct{})
	close(block)
	var ran atomic.Int32
	results := life.Each(ctx, 10, 1, func(context.Context, int) error { ran.Add(1); <-block; return nil })
	var refused int32
	for _, err := range results {
		if errors.Is(err, context.Canceled) {
			refused++
		}
	}
	if ran.Load()+refused != 10 {
		t.Errorf("ran %d, refused %d", ran.Load(), refused)
	}
}

func TestUndoRunsBackwardsOnAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var order []int
	work := func() (err error) {
		var u life.Undo
		defer u.Run(ctx, &err)
		for i := range 3 {
			u.Do(func(ctx context.Context) error { order = append(order, i); return ctx.Err() })
		}
		return io.EOF
	}
	if err := work(); !errors.Is(err, io.EOF) {
		t.Errorf("first error replaced or cleanup context ended: %v", err)
	}
	if len(order) != 3 || order[0] != 2 || order[2] != 0 {
		t.Errorf("order = %v", order)
	}
}

func TestUndoKeep(t *testing.T) {
	var u life.Undo
	u.Do(func(context.Context) error { t.Error("undone though kept"); return nil })
	u.Keep()
	var err error
	u.Run(t.Context(), &err)
}
