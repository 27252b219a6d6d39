package batch_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox/batch"
	"brood/internal/sandbox/roster"
)

// busy returns a batch with something in every corner of its state.
func busy(t testing.TB) *batch.Batch {
	t.Helper()
	b, err := batch.New(batch.Params{ID: "b-1", Now: epoch, Sources: []batch.Source{source("base", id.Local), source("env")}, Request: batch.Request{
		On: "auto", MaxParallelPerHost: 2, Retries: 3,
		Groups: []batch.Group{{Source: "base", Count: 4}, {Source: "env", Count: 3}, {Source: "base", Count: 2, NamePrefix: "p"}, {Source: "env", Count: 3}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	m1, m2, m3 := machine("m1", 4, 16_000), machine("m2", 4, 16_000), machine("m3", 8, 3_000)
	m1.Holds, m2.Holds = append(m1.Holds, source("base").Digest), append(m2.Holds, source("base").Digest)
	step := func(ev batch.Event) []batch.Effect { return b.Step(epoch.Add(time.Second), ev) }
	step(batch.Tick{})
	rs := effects[batch.Reserve](step(batch.Machines{List: []roster.Machine{m1, m2, m3, machine("local", 2, 8_000)}}))
	var starts []batch.StartFork
	for _, r := range rs[:len(rs)-1] { // the last one stays unanswered
		out := step(batch.Reserved{Grant: r.ID, Machine: r.Machine, Count: r.Count})
		for _, c := range effects[batch.EnsureCheckpoint](out) {
			step(batch.SyncProgress{Copy: c.ID, Machine: c.Machine, From: "m9", BytesDone: 3, BytesTotal: 9})
		}
		starts = append(starts, effects[batch.StartFork](out)...)
	}
	step(ready(starts[0], 8))
	step(failed(starts[1], batch.Host, "line broke"))
	step(batch.MachineFailed{Machine: rs[0].Machine, Error: "closed"})
	return b
}

// The written state is a contract with later versions: it is kept as a file.
func TestStateGolden(t *testing.T) {
	data, err := json.MarshalIndent(busy(t), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "state-1.json")
	if *update {
		if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(data)+"\n" {
		t.Errorf("the state is written in another way than %s:\n%s", path, data)
	}
	b, err := batch.Decode(want)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := json.MarshalIndent(b, "", " "); string(again) != string(data) {
		t.Errorf("read and written again it is\n%s", again)
	}
}

func TestDecodeRefuses(t *testing.T) {
	data, err := json.Marshal(busy(t))
	if err != nil {
		t.Fatal(err)
	}
	good := string(data)
	for name, c := range map[string]struct {
		from, to string
		code     errs.Code
	}{
		"newer":           {`"format":1`, `"format":2`, errs.Unsupported},
		"newer and other": {`"format":1,"id":"b-1"`, `"format":2,"id":{"batch":7}`, errs.Unsupported},
		"cut":             {`}]}`, `}`, errs.DataLoss},
		"count":           {`"count":4`, `"count":5`, errs.DataLoss},
		"fork state":      {`"forks":"`, `"forks":"x`, errs.DataLoss},
		"request":         {`"count":4`, `"count":0`, errs.DataLoss},
		"next id":         {`"next_id":`, `"next_id":0,"x":`, errs.DataLoss},
		"part's forks":    {`"open":[[`, `"open":[[1`, errs.DataLoss},
		"drawn":           {`"drawn":{"`, `"drawn":{"x`, errs.DataLoss},
		"machine":         {`"machines":[{"name":"`, `"machines":[{"name":"x`, errs.DataLoss},
	} {
		bad := strings.Replace(good, c.from, c.to, 1)
		if bad == good {
			t.Fatalf("%s: nothing to replace in %s", name, good)
		}
		if _, err := batch.Decode([]byte(bad)); errs.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %v", name, err, c.code)
		}
	}
	for _, bad := range []string{"", "null", "[]", "{}", `"x"`} {
		if _, err := batch.Decode([]byte(bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

func TestStateInsideAnotherRecord(t *testing.T) {
	type record struct {
		Format int          `json:"format"`
		Batch  *batch.Batch `json:"batch"`
	}
	data, err := json.Marshal(record{1, busy(t)})
	if err != nil {
		t.Fatal(err)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	if again, _ := json.Marshal(r); string(again) != string(data) {
		t.Error("it differs after reading")
	}
}

// FuzzDecode: whatever is read must be refused or lead to a batch that can be
// stepped through anything without a panic, and written again.
func FuzzDecode(f *testing.F) {
	data, err := json.Marshal(busy(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	b, _ := batch.New(batch.Params{ID: "b", Now: epoch, Request: batch.Request{Source: "base", Count: 2}, Sources: []batch.Source{source("base")}})
	for _, ev := range []batch.Event{batch.Tick{}, batch.Machines{List: []roster.Machine{machine("local", 2, 4000)}}, batch.Cancel{}} {
		b.Step(epoch, ev)
		data, _ := json.Marshal(b)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := batch.Decode(data)
		if err != nil {
			if b != nil {
				t.Fatal("a batch beside an error")
			}
			return
		}
		now := b.Started().Add(time.Hour)
		for i := range 40 {
			e, m := batch.EffectID(i), id.Machine(fmt.Sprintf("m%d", i%3))
			for _, ev := range []batch.Event{
				batch.Reserved{Grant: e, Machine: m, Count: i % 3}, batch.Synced{SyncProgress: batch.SyncProgress{Copy: e, Machine: m}},
				batch.ForkReady{Token: e, Index: i % 5, Machine: m}, batch.ForkFailed{Token: e, Index: i % 7, Machine: m, Cause: batch.Cause(i % 3)},
				batch.SyncFailed{Copy: e, Machine: m}, batch.ReserveRefused{Grant: e, Machine: m},
			} {
				b.Step(now, ev)
			}
		}
		for _, ev := range []batch.Event{
			batch.Machines{List: []roster.Machine{machine("local", 2, 4000), machine("m1", 2, 40_000)}}, batch.Tick{}, batch.Beat{Machine: "m1", FreeMemoryMiB: 1},
			batch.Restarted{Alive: []batch.Alive{{Token: 3, Index: 1}}}, batch.MachineFailed{Machine: "local"}, batch.MachineFailed{Machine: "m1"}, batch.Cancel{},
		} {
			b.Step(now, ev)
			now = now.Add(time.Minute)
		}
		again, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := batch.Decode(again); err != nil {
			t.Fatalf("what was stepped is not read again: %v\n%s", err, again)
		}
	})
}
