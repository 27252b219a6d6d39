package batch_test

import (
	"strings"
	"testing"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox/batch"
)

func TestLocalFlow(t *testing.T) {
	s := newScript(t, batch.Request{Source: "base", Count: 3, MaxParallelPerHost: 2, NamePrefix: "w"}, source("base", id.Local))
	s.do(batch.Tick{})
	s.after(time.Millisecond).snapshot(machine("local", 2, 8000))
	first := effects[batch.StartFork](s.grant())
	s.do(batch.ForkStarted{Token: first[0].ID, Index: 0, Machine: "local"})
	s.after(30 * time.Millisecond)
	third := one[batch.StartFork](t, s.do(ready(first[1], 29)))
	s.do(failed(first[0], batch.Own, "identity was not confirmed within 10s"))
	s.after(20 * time.Millisecond).do(ready(third, 20))
	if !s.b.Done() {
		t.Error("all forks have their end, the batch has not")
	}
	s.golden("local")
}

func TestLocalFullMachine(t *testing.T) {
	s := newScript(t, batch.Request{Source: "base", Count: 5, NamePrefix: "w"}, source("base", id.Local))
	s.do(batch.Tick{})
	m := machine("local", 2, 8000)
	m.SandboxLimit, m.SandboxesUsed = 10, 7
	r := one[batch.Reserve](t, s.snapshot(m))
	if r.Count != 3 {
		t.Fatalf("reserves %d, 3 have room", r.Count)
	}
	// Another batch was quicker: only one fits by now.
	out := s.do(batch.Reserved{Grant: r.ID, Machine: "local", Count: 1})
	s.do(ready(one[batch.StartFork](t, out), 5))
	if ok, bad := s.b.Counts(); ok != 1 || bad != 4 || !s.b.Done() {
		t.Errorf("ok %d, failed %d, done %v", ok, bad, s.b.Done())
	}
	s.golden("local-full")
}

// What a machine starts at once bounds the batch, and its peak.
func TestLocalStartLimit(t *testing.T) {
	s := newScript(t, batch.Request{Source: "base", Count: 5, MaxParallelPerHost: 64, NamePrefix: "w"}, source("base", id.Local))
	s.do(batch.Tick{})
	m := machine("local", 2, 64_000)
	m.StartLimit = 2
	s.snapshot(m)
	starting := effects[batch.StartFork](s.grant())
	var summary *batch.Summary
	for len(starting) > 0 {
		if len(starting) > 2 {
			t.Fatalf("%d forks start at once", len(starting))
		}
		out := s.do(ready(starting[0], 5))
		starting = append(starting[1:], effects[batch.StartFork](out)...)
		for _, r := range records(out) {
			summary = r.Done
		}
	}
	if ok, bad := s.b.Counts(); ok != 5 || bad != 0 || !s.b.Done() {
		t.Fatalf("ok %d, failed %d, done %v", ok, bad, s.b.Done())
	}
	if summary == nil || summary.PeakParallel["local"] != 2 {
		t.Errorf("the summary is %+v", summary)
	}
}

func TestLocalRefused(t *testing.T) {
	s := newScript(t, batch.Request{Source: "base", Count: 2, NamePrefix: "w"}, source("base", id.Local))
	s.do(batch.Tick{})
	r := one[batch.Reserve](t, s.snapshot(machine("local", 2, 8000)))
	out := records(s.do(batch.ReserveRefused{Grant: r.ID, Machine: "local", Why: "limit 5"}))
	if len(out) != 3 || out[0].Item == nil || out[0].Item.ErrorCode != batch.CodeNoCapacity || out[2].Done == nil {
		t.Fatalf("%+v", out)
	}
	if !strings.Contains(out[0].Item.Error, "limit 5") || out[0].Item.Attempt != 1 || out[0].Item.Host != "local" {
		t.Errorf("%+v", out[0].Item)
	}
}

func TestLocalMemoryFloor(t *testing.T) {
	src := source("base", id.Local)
	src.StartMiB = 300
	s := newScript(t, batch.Request{Source: "base", Count: 4, NamePrefix: "w"}, src)
	s.do(batch.Tick{})
	m := machine("local", 2, 10_000)
	m.FreeMemoryMiB = 1_200 // the floor is 500: two fit, a third would reach below
	s.snapshot(m)
	started := effects[batch.StartFork](s.grant())
	if len(started) != 2 {
		t.Fatalf("%d started with room for 2", len(started))
	}
	// A start ends; what it took is not measured yet, so nothing follows.
	if out := s.do(ready(started[0], 9)); len(effects[batch.StartFork](out)) != 0 {
		t.Fatalf("started without a measurement: %+v", out)
	}
	// Measured: it took less than said, so one more fits.
	out := s.do(batch.Beat{Machine: "local", FreeMemoryMiB: 1_150})
	third := one[batch.StartFork](t, out)
	s.do(ready(started[1], 9))
	one[batch.AskMachines](t, s.do(ready(third, 9))) // nothing runs, nothing starts: ask
	m.FreeMemoryMiB = 700
	out = s.snapshot(m)
	item := records(out)[0].Item
	if item == nil || item.ErrorCode != batch.CodeNoCapacity || !s.b.Done() {
		t.Fatalf("%+v", records(out))
	}
	s.golden("local-memory")
}

func TestCancelKeepsWhatStarted(t *testing.T) {
	s := newScript(t, batch.Request{Source: "base", Count: 4, MaxParallelPerHost: 1, NamePrefix: "w"}, source("base", id.Local))
	s.do(batch.Tick{})
	s.snapshot(machine("local", 2, 8000))
	first := one[batch.StartFork](t, s.grant())
	second := one[batch.StartFork](t, s.after(time.Second).do(ready(first, 9)))
	s.do(batch.Cancel{})
	if s.b.Done() {
		t.Error("done while a fork is starting")
	}
	s.after(time.Second).do(ready(second, 9))
	if ok, bad := s.b.Counts(); ok != 2 || bad != 2 || !s.b.Done() {
		t.Errorf("ok %d, failed %d", ok, bad)
	}
	if out := s.do(batch.Cancel{}); len(out) != 0 {
		t.Errorf("cancelled twice: %+v", out)
	}
	s.golden("cancel")
}

func TestCancelBeforeTheReservationIsAnswered(t *testing.T) {
	s := newScript(t, batch.Request{Source: "base", Count: 2, NamePrefix: "w"}, source("base", id.Local))
	s.do(batch.Tick{})
	r := one[batch.Reserve](t, s.snapshot(machine("local", 2, 8000)))
	s.do(batch.Cancel{})
	if !s.b.Done() {
		t.Error("nothing is left to do")
	}
	rel := one[batch.Release](t, s.do(batch.Reserved{Grant: r.ID, Machine: "local", Count: 2}))
	if rel.Count != 2 || rel.Grant != r.ID {
		t.Errorf("%+v", rel)
	}
	if out := s.do(batch.Reserved{Grant: r.ID, Machine: "local", Count: 2}); len(out) != 0 {
		t.Errorf("the same answer released twice: %+v", out)
	}
}

func TestRestart(t *testing.T) {
	s := newScript(t, batch.Request{Source: "base", Count: 5, MaxParallelPerHost: 3, NamePrefix: "w"}, source("base", id.Local))
	s.do(batch.Tick{})
	s.snapshot(machine("local", 2, 8000))
	f := effects[batch.StartFork](s.grant())
	s.do(ready(f[0], 9)) // w-3 starts
	// The daemon dies. w-0 is ready, w-1 got ready unnoticed, w-2 and w-3 were
	// starting; w-4 waits.
	out := s.after(time.Minute).do(batch.Restarted{Alive: []batch.Alive{
		{Token: f[0].ID, Index: 0, ForkMS: 9}, {Token: f[1].ID, Index: 1, ForkMS: 11}, {Token: 999, Index: 4},
	}})
	if got := effects[batch.RemoveFork](out); len(got) != 3 {
		t.Errorf("removals %+v, want the unknown one and two interrupted ones", got)
	}
	again := effects[batch.StartFork](s.grant())
	if len(again) != 3 || again[0].Index != 2 || again[0].ID <= 999 {
		t.Fatalf("%+v", again)
	}
	// It dies again at once: whoever was starting twice is not trusted more.
	s.do(batch.Restarted{Alive: []batch.Alive{{Token: again[2].ID, Index: 4}}})
	if ok, bad := s.b.Counts(); ok != 3 || bad != 2 || !s.b.Done() {
		t.Errorf("ok %d, failed %d, done %v", ok, bad, s.b.Done())
	}
	// Removals that were not confirmed are asked for after each restart.
	out = s.do(batch.Restarted{})
	if got := effects[batch.RemoveFork](out); len(got) != 5 {
		t.Errorf("%d removals, want 5", len(got))
	}
	for _, r := range effects[batch.RemoveFork](out) {
		s.do(batch.ForkRemoved{Token: r.Token})
	}
	if out = s.do(batch.Restarted{}); len(out) != 0 {
		t.Errorf("%+v", out)
	}
	s.golden("restart")
}

func TestTempCheckpoint(t *testing.T) {
	for _, works := range []bool{true, false} {
		src := source("base", id.Local)
		src.Temp = true
		s := newScript(t, batch.Request{Source: "base", Count: 1, NamePrefix: "w"}, src)
		s.do(batch.Tick{})
		s.snapshot(machine("local", 2, 8000))
		f := one[batch.StartFork](t, s.grant())
		var out []batch.Effect
		if works {
			out = s.do(ready(f, 9))
		} else {
			out = s.do(failed(f, batch.Own, "x"))
		}
		if got := effects[batch.DeleteTempCheckpoint](out); (len(got) == 0) != works {
			t.Errorf("fork ready %v: %+v", works, got)
		}
	}
}

func TestTakenNamesAllClashes(t *testing.T) {
	s := newScript(t, batch.Request{Source: "base", Count: 12, NamePrefix: "w"}, source("base"))
	err := s.b.Taken(map[id.Machine][]id.Name{"local": {"w-3", "x"}, "m1": {"w-11", "w-12"}})
	if errs.CodeOf(err) != errs.AlreadyExists || !strings.Contains(err.Error(), "w-11 on m1, w-3 on local;") {
		t.Errorf("%v", err)
	}
	if err := s.b.Taken(map[id.Machine][]id.Name{"local": {"w-12", "w"}}); err != nil {
		t.Error(err)
	}
}
