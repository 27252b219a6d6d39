package batch_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/id"
	"brood/internal/sandbox/batch"
	"brood/internal/sandbox/roster"
)

// auto begins a batch over machines and returns the reservations.
func auto(t *testing.T, r batch.Request, sources []batch.Source, list ...roster.Machine) (*script, []batch.Reserve) {
	t.Helper()
	r.On = "auto"
	if r.NamePrefix == "" {
		r.NamePrefix = "w"
	}
	s := newScript(t, r, sources...)
	s.do(batch.Tick{})
	return s, effects[batch.Reserve](s.snapshot(list...))
}

func holding(m roster.Machine, sources ...string) roster.Machine {
	for _, s := range sources {
		m.Holds = append(m.Holds, digest.Of([]byte(s)))
	}
	return m
}

func busyWith(m roster.Machine, cpus, memory uint64) roster.Machine {
	m.ReservedCPUs, m.ReservedMemoryMiB = cpus, memory
	return m
}

func hosts(rs []batch.Reserve) []id.Machine {
	var out []id.Machine
	for _, r := range rs {
		out = append(out, r.Machine)
	}
	return out
}

func TestLeastLoadedAfterPlacingWins(t *testing.T) {
	// 4 forks: small would be at 100 %, large at 50 % although it is busier now.
	_, rs := auto(t, batch.Request{Source: "base", Count: 4}, []batch.Source{source("base")},
		machine("small", 4, 64_000), busyWith(machine("large", 16, 64_000), 4, 0))
	if got := hosts(rs); !slices.Equal(got, []id.Machine{"large"}) {
		t.Errorf("%v", got)
	}
	// Memory is the larger share here.
	_, rs = auto(t, batch.Request{Source: "base", Count: 4, MemoryMiB: 2000}, []batch.Source{source("base")},
		machine("small", 16, 10_000), busyWith(machine("large", 16, 64_000), 4, 0))
	if got := hosts(rs); !slices.Equal(got, []id.Machine{"large"}) {
		t.Errorf("%v", got)
	}
}

func TestHolderWinsWithinATenth(t *testing.T) {
	for _, c := range []struct {
		cpus uint64
		want id.Machine
		say  string
	}{
		{0, "holder", "least loaded (5 %), holds the checkpoint"},
		{2, "holder", "holds the checkpoint and is hardly busier (15 %) than the least loaded, free (5 %)"},
		{3, "free", "least loaded (5 %), the checkpoint is copied there first"},
	} {
		s, rs := auto(t, batch.Request{Source: "base", Count: 1}, []batch.Source{source("base")},
			machine("free", 20, 640_000), busyWith(holding(machine("holder", 20, 640_000), "base"), c.cpus, 0))
		if rs[0].Machine != c.want {
			t.Errorf("%d cpus: %s, want %s", c.cpus, rs[0].Machine, c.want)
		}
		p := records(s.grant())[0].Placement
		if p.Reason != c.say || p.NeedsSync != (c.want == "free") {
			t.Errorf("%+v, want %q", p, c.say)
		}
	}
}

func TestGroupsSpread(t *testing.T) {
	_, rs := auto(t, batch.Request{Source: "base", Count: 12, GroupSize: 2}, []batch.Source{source("base")},
		machine("a", 8, 64_000), machine("b", 8, 64_000), machine("c", 8, 64_000))
	got := hosts(rs)
	slices.Sort(got)
	if !slices.Equal(got, []id.Machine{"a", "a", "b", "b", "c", "c"}) {
		t.Errorf("%v", got)
	}
}

func TestGroupStaysTogetherWhereItFits(t *testing.T) {
	_, rs := auto(t, batch.Request{Source: "base", Count: 20, MemoryMiB: 1000}, []batch.Source{source("base")},
		machine("a", 32, 10_000), machine("b", 8, 25_000))
	if len(rs) != 1 || rs[0].Machine != "b" || rs[0].Count != 20 {
		t.Errorf("%+v", rs)
	}
}

func TestCountedCPUNeverRefuses(t *testing.T) {
	_, rs := auto(t, batch.Request{Source: "base", Count: 500, CPUs: 8, MemoryMiB: 1}, []batch.Source{source("base")}, machine("a", 1, 1_000))
	if len(rs) != 1 || rs[0].Count != 500 {
		t.Errorf("%+v", rs)
	}
}

func TestSplitAndFull(t *testing.T) {
	lim := machine("c", 8, 64_000)
	lim.SandboxLimit, lim.SandboxesUsed = 5, 3
	s, rs := auto(t, batch.Request{Source: "base", Count: 20, MemoryMiB: 1000}, []batch.Source{source("base", "a")},
		machine("a", 8, 9_500), machine("b", 8, 4_000), lim)
	if len(rs) != 3 || rs[0].Count != 9 || rs[1].Count != 4 || rs[2].Count != 2 {
		t.Fatalf("%+v", rs)
	}
	bad := records(s.last)
	if len(bad) != 5 || bad[0].Item.ErrorCode != batch.CodeNoCapacity || bad[0].Item.Index != 15 {
		t.Errorf("%+v", bad)
	}
	s.grant()
	s.golden("split")
}

func TestNoHost(t *testing.T) {
	qemu := source("base")
	qemu.Needs.Driver = "qemu"
	off := machine("off", 8, 64_000)
	off.Online = false
	private := machine("private", 8, 64_000)
	private.Provides = false
	for name, c := range map[string]struct {
		list []roster.Machine
		want string
	}{
		"none":           {nil, "no machine is online that provides"},
		"none available": {[]roster.Machine{off, private}, "no machine is online that provides"},
		"none able":      {[]roster.Machine{machine("a", 1, 4000)}, `a has no driver "qemu"`},
	} {
		s, _ := auto(t, batch.Request{Source: "base", Count: 1}, []batch.Source{qemu}, c.list...)
		it := records(s.last)[0].Item
		if it.ErrorCode != batch.CodeNoHost || !strings.Contains(it.Error, c.want) || !s.b.Done() {
			t.Errorf("%s: %+v", name, it)
		}
	}
}

func TestThisMachineNeedsNoProvide(t *testing.T) {
	local := machine("local", 8, 64_000)
	local.Provides = false
	_, rs := auto(t, batch.Request{Source: "base", Count: 1}, []batch.Source{source("base")}, local)
	if len(rs) != 1 || rs[0].Machine != id.Local {
		t.Errorf("%+v", rs)
	}
}

func TestCountedMemory(t *testing.T) {
	for name, c := range map[string]struct {
		r    batch.Request
		src  batch.Source
		want uint64
	}{
		"asked":         {batch.Request{MemoryMiB: 77}, source("base", id.Local), 77},
		"held here":     {batch.Request{}, source("base", id.Local), 512},
		"held anywhere": {batch.Request{}, source("base", "m1"), 2048},
		"unknown":       {batch.Request{}, batch.Source{Ref: "base", Held: []id.Machine{id.Local}}, 2048},
	} {
		c.r.Source, c.r.Count = "base", 1
		_, rs := auto(t, c.r, []batch.Source{c.src}, machine("local", 8, 64_000))
		if rs[0].MemoryMiB != c.want || rs[0].CPUs != 1 {
			t.Errorf("%s: %+v, want %d", name, rs[0], c.want)
		}
	}
}

func TestCopyThenStart(t *testing.T) {
	s, _ := auto(t, batch.Request{Groups: []batch.Group{{Source: "env", Count: 1}, {Source: "env", Count: 1}}}, []batch.Source{source("env")}, machine("m1", 8, 64_000))
	c := one[batch.EnsureCheckpoint](t, s.grant()) // one copy for both groups
	at := func(ms int, done uint64) batch.SyncProgress {
		s.now = time.Duration(ms) * time.Millisecond
		return batch.SyncProgress{Copy: c.ID, Machine: "m1", From: "m9", BytesDone: done, BytesTotal: 900}
	}
	s.do(at(10, 0))
	s.do(at(50, 300))  // too soon to tell
	s.do(at(110, 600)) // told
	p := at(120, 900)
	starts := effects[batch.StartFork](s.do(batch.Synced{SyncProgress: p}))
	for _, f := range starts {
		s.do(ready(f, 4))
	}
	if len(starts) != 2 || !s.b.Done() {
		t.Errorf("%d starts", len(starts))
	}
	s.golden("copy")
}

func TestFailedCopyIsPlacedAgain(t *testing.T) {
	s, rs := auto(t, batch.Request{Source: "env", Count: 2}, []batch.Source{source("env")}, machine("m1", 8, 64_000), machine("m2", 4, 64_000))
	c := one[batch.EnsureCheckpoint](t, s.grant())
	out := s.do(batch.SyncFailed{Copy: c.ID, Machine: rs[0].Machine, Error: "no source reachable"})
	if rel := one[batch.Release](t, out); rel.Count != 2 {
		t.Errorf("%+v", rel)
	}
	again := one[batch.Reserve](t, s.snapshot(machine("m1", 8, 64_000), machine("m2", 4, 64_000)))
	if again.Machine == rs[0].Machine {
		t.Error("placed on the same machine again")
	}
	c = one[batch.EnsureCheckpoint](t, s.grant())
	s.do(batch.SyncFailed{Copy: c.ID, Machine: again.Machine, Error: "disk full"})
	if ok, bad := s.b.Counts(); ok != 0 || bad != 2 || !s.b.Done() {
		t.Errorf("ok %d, failed %d", ok, bad)
	}
	s.golden("copy-failed")
}

func TestSilentMachineAndItsLateAnswer(t *testing.T) {
	src := []batch.Source{source("base", "m1", "m2")}
	s, _ := auto(t, batch.Request{Source: "base", Count: 2, MaxParallelPerHost: 1}, src, machine("m1", 8, 64_000))
	old := one[batch.StartFork](t, s.grant())
	s.after(4 * time.Second).do(batch.Beat{Machine: "m1"})
	if wake := s.b.NextWake().Sub(epoch); wake != 14*time.Second {
		t.Errorf("wakes at %v", wake)
	}
	s.now = 13 * time.Second
	if out := s.do(batch.Tick{}); len(out) != 0 {
		t.Errorf("given up after 9 s: %+v", out)
	}
	s.now = 14 * time.Second
	s.do(batch.Tick{})
	s.snapshot(machine("m1", 8, 64_000), machine("m2", 8, 64_000)) // it is back, but it was tried
	first := one[batch.StartFork](t, s.grant())
	if first.Machine != "m2" || first.Attempt != 2 {
		t.Errorf("%+v", first)
	}
	second := one[batch.StartFork](t, s.do(ready(first, 3)))
	late := one[batch.RemoveFork](t, s.do(ready(old, 9_000)))
	if late.Token != old.ID || late.Machine != "m1" {
		t.Errorf("%+v", late)
	}
	s.do(batch.ForkRemoved{Token: old.ID})
	s.do(ready(second, 3))
	if len(s.do(ready(second, 3))) != 0 || !s.b.Done() {
		t.Error("the same answer twice must change nothing")
	}
	s.golden("silent")
}

func TestNoRetryWins(t *testing.T) {
	for _, c := range []struct {
		retries uint32
		no      bool
		want    uint32 // attempts
	}{{0, false, 2}, {1, false, 2}, {3, false, 4}, {3, true, 1}} {
		list := []roster.Machine{machine("a", 8, 64_000), machine("b", 8, 64_000), machine("c", 8, 64_000), machine("d", 8, 64_000), machine("e", 8, 64_000)}
		src := []batch.Source{source("base", "a", "b", "c", "d", "e")}
		s, rs := auto(t, batch.Request{Source: "base", Count: 1, Retries: c.retries, NoRetry: c.no}, src, list...)
		for {
			s.grant()
			s.do(batch.MachineFailed{Machine: rs[0].Machine, Error: "closed"})
			if s.b.Done() {
				break
			}
			rs = effects[batch.Reserve](s.snapshot(list...))
		}
		it := records(s.last)[0].Item
		if it.Attempt != c.want || it.ErrorCode != batch.CodeHostFailed {
			t.Errorf("retries %d, no_retry %v: %+v, want %d attempts", c.retries, c.no, it, c.want)
		}
	}
}

func TestFullMachineIsNoAttempt(t *testing.T) {
	list := []roster.Machine{machine("a", 8, 64_000), machine("b", 8, 64_000), machine("c", 8, 64_000)}
	s, rs := auto(t, batch.Request{Source: "base", Count: 1, NoRetry: true}, []batch.Source{source("base", "a", "b", "c")}, list...)
	s.do(batch.ReserveRefused{Grant: rs[0].ID, Machine: rs[0].Machine, Why: "another batch was first"})
	rs = effects[batch.Reserve](s.snapshot(list...))
	s.do(batch.ReserveRefused{Grant: rs[0].ID, Machine: rs[0].Machine})
	s.snapshot(list...)
	p := records(s.grant())[0].Placement
	if p.Attempt != 1 {
		t.Errorf("%+v", p)
	}
	s.golden("refused")
}

func TestOneMachineHasNoOther(t *testing.T) {
	for _, on := range []string{"local", "host:m1"} {
		target := id.Machine(strings.TrimPrefix(on, "host:"))
		s := newScript(t, batch.Request{Source: "base", Count: 2, On: on, Retries: 5, NamePrefix: "w"}, source("base", target))
		s.do(batch.Tick{})
		s.snapshot(machine(target, 4, 8_000))
		s.grant()
		out := records(s.do(batch.MachineFailed{Machine: target, Error: "closed"}))
		if len(out) != 3 || out[0].Item.ErrorCode != batch.CodeHostFailed || out[2].Done.Failed != 2 {
			t.Errorf("%s: %+v", on, out)
		}
	}
}

func TestHostOffline(t *testing.T) {
	s := newScript(t, batch.Request{Source: "base", Count: 1, On: "host:m1", NamePrefix: "w"}, source("base"))
	if ask := one[batch.AskMachines](t, s.do(batch.Tick{})); ask.Only != "m1" {
		t.Errorf("%+v", ask)
	}
	it := records(s.snapshot())[0].Item
	if it.ErrorCode != batch.CodeNoHost || it.Host != "m1" {
		t.Errorf("%+v", it)
	}
}

func TestAskedAgainWhenNobodyAnswers(t *testing.T) {
	s := newScript(t, batch.Request{Source: "base", Count: 1, On: "auto", NamePrefix: "w"}, source("base"))
	first := one[batch.AskMachines](t, s.do(batch.Tick{}))
	s.now = s.b.NextWake().Sub(epoch)
	second := one[batch.AskMachines](t, s.do(batch.Tick{}))
	s.do(batch.Machines{Ask: second.ID, List: []roster.Machine{machine("a", 8, 64_000)}})
	// The first answer comes after the second one: it is not news.
	if out := s.do(batch.Machines{Ask: first.ID, List: []roster.Machine{machine("b", 80, 64_000)}}); len(out) != 0 {
		t.Errorf("%+v", out)
	}
}

func TestOwnFailureIsNotPlacedAgain(t *testing.T) {
	src := []batch.Source{source("base", "m1", "m2")}
	s, _ := auto(t, batch.Request{Source: "base", Count: 3, MaxParallelPerHost: 3}, src, machine("m1", 8, 64_000), machine("m2", 2, 64_000))
	f := effects[batch.StartFork](s.grant())
	s.do(failed(f[0], batch.Own, "hook failed"))
	s.do(failed(f[1], batch.Capacity, "cgroup limit"))
	s.do(failed(f[2], batch.Host, "connection reset"))
	s.snapshot(machine("m1", 8, 64_000), machine("m2", 2, 64_000))
	for _, x := range effects[batch.StartFork](s.grant()) {
		if x.Index == 0 || x.Machine != "m2" {
			t.Errorf("%+v", x)
		}
		s.do(ready(x, 3))
	}
	if ok, bad := s.b.Counts(); ok != 2 || bad != 1 || !s.b.Done() {
		t.Errorf("ok %d, failed %d", ok, bad)
	}
	s.golden("causes")
}

func TestRestartWithOtherMachines(t *testing.T) {
	src := []batch.Source{source("base", "m1"), source("env")}
	s, _ := auto(t, batch.Request{Groups: []batch.Group{{Source: "base", Count: 2}, {Source: "env", Count: 1}}}, src,
		machine("m1", 8, 64_000), machine("m2", 8, 64_000))
	starts := effects[batch.StartFork](s.grant())
	out := s.after(time.Minute).do(batch.Restarted{})
	if got := effects[batch.StartFork](out); len(got) != 2 || got[0] != starts[0] {
		t.Errorf("what runs elsewhere is asked for again under its token: %+v", got)
	}
	if got := effects[batch.EnsureCheckpoint](out); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	if wake := s.b.NextWake().Sub(epoch); wake != s.now+batch.BeatLimit {
		t.Errorf("a machine gets its 10 s anew: %v", wake)
	}
	s.golden("restart-auto")
}
