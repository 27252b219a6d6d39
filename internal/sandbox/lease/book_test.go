package lease_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/sandbox/lease"
)

func d(n int) digest.Digest { return digest.Of([]byte{byte(n)}) }

func fork(n int) lease.Holder { return lease.Holder{Kind: lease.Fork, ID: fmt.Sprint("sb-", n)} }

// again writes the book and reads it back.
func again(t *testing.T, b *lease.Book) *lease.Book {
	t.Helper()
	data, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	var out lease.Book
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return &out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTemporaryCheckpointGoesWithItsLastFork(t *testing.T) {
	b := &lease.Book{}
	batch := lease.Holder{Kind: lease.Batch, ID: "b-1"}
	b.Add(d(1), true)
	must(t, b.Hold(d(1), batch))
	must(t, b.Hold(d(1), fork(1)))
	must(t, b.Hold(d(1), fork(2)))
	b = again(t, b)
	b.DropAll(batch)
	b.DropAll(fork(1))
	if due := b.Due(); len(due) != 0 {
		t.Fatalf("due under a fork: %v", due)
	}
	b = again(t, b)
	b.DropAll(fork(2))
	if due := b.Due(); !slices.Equal(due, []digest.Digest{d(1)}) {
		t.Fatalf("due %v", due)
	}
	// A crash in the middle of the deletion leaves it due.
	must(t, b.Condemn(d(1)))
	b = again(t, b)
	must(t, b.Condemn(b.Due()[0]))
	must(t, b.Forget(d(1)))
	if b.Has(d(1)) || len(b.Due()) != 0 {
		t.Error("forgotten and still there")
	}
}

func TestTemporaryCheckpointGoesWithABatchWithoutForks(t *testing.T) {
	b := &lease.Book{}
	b.Add(d(1), true)
	must(t, b.Hold(d(1), lease.Holder{Kind: lease.Batch, ID: "b-1"}))
	b.DropAll(lease.Holder{Kind: lease.Batch, ID: "b-1"})
	if len(b.Due()) != 1 {
		t.Error("nothing keeps it")
	}
}

func TestTemporaryParentStaysForItsChild(t *testing.T) {
	b := &lease.Book{}
	b.Add(d(1), true)
	b.Add(d(2), false)
	must(t, b.Hold(d(1), lease.Holder{Kind: lease.Child, ID: string(d(2))}))
	if len(b.Due()) != 0 {
		t.Error("its child needs it")
	}
	must(t, b.Condemn(d(2)))
	must(t, b.Forget(d(2)))
	if due := b.Due(); !slices.Equal(due, []digest.Digest{d(1)}) {
		t.Errorf("due %v: the child is gone", due)
	}
}

func TestHeldIsNotDeleted(t *testing.T) {
	b := &lease.Book{}
	b.Add(d(1), false)
	must(t, b.Hold(d(1), lease.Holder{Kind: lease.Pin, ID: "user"}))
	for i := range 7 {
		must(t, b.Hold(d(1), fork(i)))
	}
	err := b.Condemn(d(1))
	if errs.CodeOf(err) != errs.FailedPrecondition || !strings.Contains(err.Error(), "fork sb-0, fork sb-1, fork sb-2, fork sb-3, fork sb-4, 3 more") {
		t.Errorf("%v", err)
	}
	b.Keep(lease.Fork, []string{"sb-3"})
	if got := b.Holders(d(1)); len(got) != 2 || got[0] != fork(3) {
		t.Errorf("%v", got)
	}
	b.Keep(lease.Fork, nil)
	if err := b.Condemn(d(1)); err == nil || !strings.Contains(err.Error(), "a pin") {
		t.Errorf("%v", err)
	}
}

func TestCondemnedTakesNoHolder(t *testing.T) {
	b := &lease.Book{}
	b.Add(d(1), false)
	must(t, b.Condemn(d(1)))
	if err := b.Hold(d(1), fork(1)); errs.CodeOf(err) != errs.FailedPrecondition {
		t.Errorf("%v", err)
	}
	if len(b.Due()) != 1 {
		t.Error("its deletion is not finished")
	}
	b.Spare(d(1))
	must(t, b.Hold(d(1), fork(1)))
	if len(b.Due()) != 0 {
		t.Error("spared and due")
	}
}

func TestUnknown(t *testing.T) {
	b := &lease.Book{}
	if errs.CodeOf(b.Hold(d(1), fork(1))) != errs.NotFound || errs.CodeOf(b.Condemn(d(1))) != errs.NotFound {
		t.Error("an unknown checkpoint is NotFound")
	}
	b.Drop(d(1), fork(1))
	b.Spare(d(1))
	must(t, b.Forget(d(1)))
	b.Add(d(1), false)
	for _, h := range []lease.Holder{{}, {Kind: lease.Fork}, {Kind: "x", ID: "y"}} {
		if errs.CodeOf(b.Hold(d(1), h)) != errs.Internal {
			t.Errorf("holder %+v is taken", h)
		}
	}
	must(t, b.Hold(d(1), fork(1)))
	if errs.CodeOf(b.Forget(d(1))) != errs.DataLoss {
		t.Error("deleted under a fork without a word")
	}
}

func TestWantedForGoodAfterAll(t *testing.T) {
	b := &lease.Book{}
	b.Add(d(1), true)
	b.Add(d(1), false)
	b.Add(d(1), true)
	if b.Temp(d(1)) || len(b.Due()) != 0 {
		t.Error("it was added for good")
	}
}

// Random lives of checkpoints, the book written and read back at every step:
// nothing that is held is ever due, and what is temporary and free always is.
func TestRandomLives(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 9))
		b := &lease.Book{}
		type hold struct {
			d digest.Digest
			h lease.Holder
		}
		held := map[hold]bool{}
		temp := map[digest.Digest]bool{}
		gone := map[digest.Digest]bool{}
		kinds := []lease.Kind{lease.Fork, lease.Transfer, lease.Batch, lease.Pin}
		for range 120 {
			x := hold{d(r.IntN(5)), lease.Holder{Kind: kinds[r.IntN(4)], ID: fmt.Sprint(r.IntN(4))}}
			switch r.IntN(6) {
			case 0:
				if !b.Has(x.d) {
					temp[x.d] = r.IntN(2) == 0
					b.Add(x.d, temp[x.d])
					gone[x.d] = false
				}
			case 1, 2:
				if err := b.Hold(x.d, x.h); (err == nil) != (b.Has(x.d) && !gone[x.d]) {
					t.Fatalf("seed %d: %v", seed, err)
				} else if err == nil {
					held[x] = true
				}
			case 3:
				b.Drop(x.d, x.h)
				delete(held, x)
			case 4:
				b.DropAll(x.h)
				for y := range held {
					if y.h == x.h {
						delete(held, y)
					}
				}
			case 5:
				if due := b.Due(); len(due) > 0 {
					one := due[r.IntN(len(due))]
					must(t, b.Condemn(one))
					gone[one] = true
					if r.IntN(2) == 0 {
						must(t, b.Forget(one))
					}
				}
			}
			b = again(t, b)
			due := b.Due()
			for i := range 5 {
				free := true
				for y := range held {
					free = free && y.d != d(i)
				}
				if want := b.Has(d(i)) && free && (temp[d(i)] || gone[d(i)]); want != slices.Contains(due, d(i)) {
					t.Fatalf("seed %d: due %v, want %v for %d", seed, due, want, i)
				}
			}
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	b := &lease.Book{}
	b.Add(d(1), true)
	b.Add(d(2), false)
	_ = b.Hold(d(1), fork(1))
	_ = b.Condemn(d(2))
	data, _ := json.Marshal(b)
	f.Add(data)
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var b lease.Book
		if err := b.UnmarshalJSON(data); err != nil {
			if c := errs.CodeOf(err); c != errs.DataLoss && c != errs.Unsupported {
				t.Fatalf("%v: code %v", err, c)
			}
			return
		}
		one, _ := json.Marshal(&b)
		two, _ := json.Marshal(again(t, &b))
		if string(one) != string(two) {
			t.Fatalf("%s\n%s", one, two)
		}
	})
}
