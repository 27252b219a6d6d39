package batch_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/id"
	"brood/internal/sandbox/batch"
	"brood/internal/sandbox/roster"
)

var update = flag.Bool("update", false, "write the transcripts anew")

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// script drives a batch by hand and keeps a readable transcript.
type script struct {
	t    *testing.T
	b    *batch.Batch
	now  time.Duration
	text strings.Builder
	last []batch.Effect
	ask  batch.EffectID // the newest question for a snapshot
}

func newScript(t *testing.T, r batch.Request, sources ...batch.Source) *script {
	t.Helper()
	b, err := batch.New(batch.Params{ID: "b-1", Now: epoch, Request: r, Sources: sources, Rand: [32]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	return &script{t: t, b: b}
}

func source(ref string, held ...id.Machine) batch.Source {
	return batch.Source{Ref: ref, Digest: digest.Of([]byte(ref)), MemoryMiB: 512, Held: held}
}

// after moves the clock.
func (s *script) after(d time.Duration) *script { s.now += d; return s }

// do feeds one event and returns the effects; the state is written and read
// back each time.
func (s *script) do(ev batch.Event) []batch.Effect {
	s.t.Helper()
	s.last = s.b.Step(epoch.Add(s.now), ev)
	fmt.Fprintf(&s.text, "%-7s > %s\n", s.now, show(ev))
	for _, e := range s.last {
		if a, ok := e.(batch.AskMachines); ok {
			s.ask = a.ID
		}
		fmt.Fprintf(&s.text, "            %s\n", show(e))
	}
	data, err := json.Marshal(s.b)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.b, err = batch.Decode(data); err != nil {
		s.t.Fatalf("%v\n%s", err, data)
	}
	return s.last
}

func show(v any) string {
	if e, ok := v.(batch.Emit); ok {
		data, _ := json.Marshal(e.Record)
		return string(data)
	}
	if m, ok := v.(batch.Machines); ok {
		var list []string
		for _, x := range m.List {
			list = append(list, fmt.Sprintf("%s %d cores %d MiB", x.Name, x.Cores, x.MemoryMiB))
		}
		return fmt.Sprintf("Machines{Ask:%d %s}", m.Ask, strings.Join(list, ", "))
	}
	text := fmt.Sprintf("%+v", v)
	for _, s := range []string{"base", "env"} {
		text = strings.ReplaceAll(text, string(digest.Of([]byte(s))), "sha("+s+")")
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", v), "batch.") + text
}

// golden compares the transcript with its file.
func (s *script) golden(name string) {
	s.t.Helper()
	path := filepath.Join("testdata", name+".txt")
	got := s.text.String()
	for _, d := range []string{"base", "env"} {
		got = strings.ReplaceAll(got, string(digest.Of([]byte(d))), "sha("+d+")")
	}
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	if got != string(want) {
		s.t.Errorf("transcript differs from %s (run with -update to accept):\n%s", path, got)
	}
}

// effects returns those of one type among the last.
func effects[E batch.Effect](list []batch.Effect) []E {
	var out []E
	for _, e := range list {
		if x, ok := e.(E); ok {
			out = append(out, x)
		}
	}
	return out
}

// one returns the only effect of a type.
func one[E batch.Effect](t *testing.T, list []batch.Effect) E {
	t.Helper()
	got := effects[E](list)
	if len(got) != 1 {
		t.Fatalf("%d effects of %T, want 1: %+v", len(got), *new(E), list)
	}
	return got[0]
}

func records(list []batch.Effect) []batch.Record {
	var out []batch.Record
	for _, e := range effects[batch.Emit](list) {
		out = append(out, e.Record)
	}
	return out
}

func machine(name id.Machine, cores int, memory uint64) roster.Machine {
	return roster.Machine{Name: name, Online: true, Provides: true, Cores: cores, MemoryMiB: memory}
}

// snapshot answers the newest question for one.
func (s *script) snapshot(list ...roster.Machine) []batch.Effect {
	s.t.Helper()
	if s.ask == 0 {
		s.t.Fatal("nobody asked for a snapshot")
	}
	ask := s.ask
	s.ask = 0
	return s.do(batch.Machines{Ask: ask, List: list})
}

// grant answers all reservations among the last effects in full.
func (s *script) grant() []batch.Effect {
	s.t.Helper()
	var out []batch.Effect
	for _, r := range effects[batch.Reserve](s.last) {
		out = append(out, s.do(batch.Reserved{Grant: r.ID, Machine: r.Machine, Count: r.Count})...)
	}
	return out
}

func ready(f batch.StartFork, ms uint64) batch.ForkReady {
	return batch.ForkReady{Token: f.ID, Index: f.Index, Machine: f.Machine, ForkMS: ms}
}

func failed(f batch.StartFork, cause batch.Cause, text string) batch.ForkFailed {
	return batch.ForkFailed{Token: f.ID, Index: f.Index, Machine: f.Machine, Cause: cause, Error: text}
}
