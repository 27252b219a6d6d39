package exec_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
	"brood/internal/sandbox"
	"brood/internal/sandbox/batch"
	"brood/internal/sandbox/batch/exec"
	"brood/internal/sandbox/checkpoint"
	"brood/internal/sandbox/driver/fake"
	"brood/internal/sandbox/guest"
	"brood/internal/sandbox/host"
	"brood/internal/sandbox/image"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// machine is a home whose sandboxes are data, with the parts of a daemon that
// batches need. Its parts can be closed and opened again, as by the next daemon.
type machine struct {
	t     *testing.T
	home  *home.Home
	world *fake.World
	host  *host.Host
	m     *exec.Manager
}

// newMachine makes one that has the checkpoint "base" of the sandbox "src".
func newMachine(t *testing.T) *machine {
	t.Helper()
	h, err := home.Open(t.TempDir())
	check(t, err)
	c := &machine{t: t, home: h, world: fake.NewWorld()}
	t.Cleanup(func() { check(t, c.world.Close()) })
	root := t.TempDir()
	check(t, os.WriteFile(filepath.Join(root, "file"), []byte("x"), 0o600))
	c.open(c.world.Driver())
	t.Cleanup(c.close)
	_, err = c.host.Create(t.Context(), host.CreateParams{Name: "src", Image: root, Command: guest.Command{Argv: []string{"counter"}}})
	check(t, err)
	_, err = c.host.Capture(t.Context(), host.CaptureParams{Source: "src", Name: "base"})
	check(t, err)
	return c
}

func (c *machine) open(d sandbox.Driver) {
	c.t.Helper()
	program := []byte("a guest program that nobody runs")
	images, err := image.Open(c.home, image.GuestBinary{Bytes: program, Digest: digest.Of(program)})
	check(c.t, err)
	cps, err := checkpoint.Open(c.home)
	check(c.t, err)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	// The context of a test ends before its cleanups.
	c.host, err = host.Open(context.Background(), host.Params{
		Home: c.home, Driver: d, Images: images, Checkpoints: cps, Log: log, Needs: checkpoint.NeedsHere(), MaxStarting: 4, MinFree: 1,
	})
	check(c.t, err)
	c.m, err = exec.Open(context.Background(), exec.Params{Home: c.home, Host: c.host, Checkpoints: cps, Log: log})
	check(c.t, err)
}

// close stops the parts as a daemon that ends does. Batches stand still.
func (c *machine) close() {
	if c.m == nil {
		return
	}
	c.expect(c.m.Close())
	c.expect(c.host.Close())
	c.m, c.host = nil, nil
}

func (c *machine) expect(err error) {
	c.t.Helper()
	if err != nil && !errs.Is(err, errs.Canceled) {
		c.t.Error(err)
	}
}

// restart closes the parts, lets damage have the batch's folder, and opens
// them with d.
func (c *machine) restart(d sandbox.Driver, damage func()) {
	c.t.Helper()
	c.close()
	damage()
	c.open(d)
}

func (c *machine) start(count uint32) exec.Batch {
	c.t.Helper()
	b, err := c.m.Start(c.t.Context(), batch.Request{Source: "base", Count: count, NamePrefix: "f"}, "")
	check(c.t, err)
	return b
}

// records reads a batch to its end.
func (c *machine) records(b id.Batch) []batch.Record {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	v, err := c.m.Get(b)
	check(c.t, err)
	var all []batch.Record
	for r, err := range v.Records(ctx, 0) {
		check(c.t, err)
		all = append(all, r)
	}
	return all
}

// ended checks the books of a batch of n: every fork has one end, those that
// are ready exist, nobody else does.
func (c *machine) ended(b id.Batch, n int) batch.Summary {
	c.t.Helper()
	all := c.records(b)
	if len(all) == 0 || all[len(all)-1].Done == nil {
		c.t.Fatalf("the batch did not end: %+v", all)
	}
	ends, ready := map[uint32]bool{}, map[id.Name]bool{}
	for i, r := range all {
		if r.Seq != uint64(i+1) {
			c.t.Errorf("record %d has the number %d", i, r.Seq)
		}
		if r.Item == nil {
			continue
		}
		if ends[r.Item.Index] {
			c.t.Errorf("fork %d ended twice", r.Item.Index)
		}
		ends[r.Item.Index] = true
		if r.Item.Error == "" {
			ready[r.Item.Name] = true
		}
	}
	for _, sb := range c.host.List() {
		if sb.Origin != nil && !ready[sb.Name] {
			c.t.Errorf("%s is in nobody's books", sb.Name)
		}
		delete(ready, sb.Name)
	}
	if len(ready) != 0 {
		c.t.Errorf("ready and not there: %v", ready)
	}
	s := *all[len(all)-1].Done
	if len(ends) != n || int(s.OK+s.Failed) != n {
		c.t.Errorf("%d of %d forks ended, the summary is %+v", len(ends), n, s)
	}
	return s
}

// gate holds the nth restore until it is opened or the work is given up.
type gate struct {
	reached chan struct{}
	open    chan struct{}
}

func gateAt(n int) (*gate, fake.Hooks) {
	g := &gate{reached: make(chan struct{}), open: make(chan struct{})}
	return g, fake.Hooks{fake.OpRestore: func(ctx context.Context, call fake.Call) error {
		if call.N != n {
			return nil
		}
		close(g.reached)
		select {
		case <-g.open:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
}

func TestBatchRunsToItsEnd(t *testing.T) {
	c := newMachine(t)
	b := c.start(8)
	if s := c.ended(b.ID(), 8); s.OK != 8 || s.PeakParallel[id.Local] > 4 {
		t.Errorf("%+v", s)
	}
	if _, err := os.Stat(filepath.Join(c.home.Batches(), string(b.ID()), "journal.jsonl")); !os.IsNotExist(err) {
		t.Errorf("the journal of an ended batch: %v", err)
	}
}

func TestFailuresAreOfTheForkAlone(t *testing.T) {
	c := newMachine(t)
	full := errs.New(errs.ResourceExhausted, "no room left")
	own := errs.New(errs.Internal, "struck by lightning")
	c.restart(fake.Faulty(c.world.Driver(), nil, fake.Hooks{fake.OpRestore: func(_ context.Context, call fake.Call) error {
		switch call.N {
		case 2:
			return full
		case 5:
			return own
		}
		return nil
	}}), func() {})
	b := c.start(8)
	if s := c.ended(b.ID(), 8); s.OK < 6 || s.Failed < 1 {
		t.Errorf("%+v", s)
	}
}

// A batch whose daemon ends in the middle goes on with the next one, and what
// it had told stays told.
func TestGoesOnAfterARestart(t *testing.T) {
	c := newMachine(t)
	g, hooks := gateAt(4)
	c.restart(fake.Faulty(c.world.Driver(), hooks, nil), func() {})
	b := c.start(8)
	<-g.reached
	before := toldBy(t, b)
	c.restart(c.world.Driver(), func() {})
	c.ended(b.ID(), 8)
	after := c.records(b.ID())
	for i, r := range before {
		if was, is := text(t, r), text(t, after[i]); was != is {
			t.Errorf("record %d was %s, is %s", i, was, is)
		}
	}
}

// toldBy is what a batch has recorded so far.
func toldBy(t *testing.T, b exec.Batch) []batch.Record {
	t.Helper()
	_, _, _, last := b.Info()
	var all []batch.Record
	if last == 0 {
		return nil
	}
	for r, err := range b.Records(t.Context(), 0) {
		check(t, err)
		if all = append(all, r); r.Seq == last {
			break
		}
	}
	return all
}

func text(t *testing.T, r batch.Record) string {
	t.Helper()
	out, err := json.Marshal(r)
	check(t, err)
	return string(out)
}

// Whatever a crash or a bad disk made of a journal, the next daemon starts and
// the batch ends with books that are right.
func TestGoesOnFromADamagedJournal(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"cut off":      func(b []byte) []byte { return b[:len(b)-len(b)/3] },
		"empty":        func([]byte) []byte { return nil },
		"zeros":        func(b []byte) []byte { return append(b[:len(b)/2:len(b)/2], make([]byte, len(b)/2)...) },
		"zeros, lines": func(b []byte) []byte { return append(b[:len(b)/2:len(b)/2], append(make([]byte, 100), '\n', '\n')...) },
		"odd kind":     func(b []byte) []byte { return bytes.Replace(b, []byte(`"reserved"`), []byte(`"revered"`), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newMachine(t)
			g, hooks := gateAt(4)
			c.restart(fake.Faulty(c.world.Driver(), hooks, nil), func() {})
			b := c.start(6)
			<-g.reached
			path := filepath.Join(c.home.Batches(), string(b.ID()), "journal.jsonl")
			c.restart(c.world.Driver(), func() {
				was, err := os.ReadFile(path)
				check(t, err)
				check(t, os.WriteFile(path, damage(was), 0o600))
			})
			c.ended(b.ID(), 6)
		})
	}
}

// A batch whose books are lost is known by its forks.
func TestDamagedBooksAreMadeOfTheForks(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"empty":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"garbage": func(path string) error { return os.WriteFile(path, []byte("{garbage"), 0o600) },
		"gone":    os.Remove,
		"other's": func(path string) error {
			was, err := os.ReadFile(path)
			check(t, err)
			return os.WriteFile(path, bytes.ReplaceAll(was, []byte(`"id":"b-`), []byte(`"id":"b-x`)), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newMachine(t)
			g, hooks := gateAt(4)
			c.restart(fake.Faulty(c.world.Driver(), hooks, nil), func() {})
			b := c.start(6)
			<-g.reached
			for r, err := range b.Records(t.Context(), 0) {
				check(t, err)
				if r.Item != nil {
					break // one is ready
				}
			}
			c.restart(c.world.Driver(), func() { check(t, damage(filepath.Join(c.home.Batches(), string(b.ID()), "batch.json"))) })
			for range 2 {
				v, err := c.m.Get(b.ID())
				check(t, err)
				i, _, _, _ := v.Info()
				if s := c.ended(b.ID(), i.Total); s.OK == 0 || !i.Damaged || !strings.Contains(i.Note, "damaged") || i.Request.Source != "base" {
					t.Errorf("%+v, %+v", s, i)
				}
				c.restart(c.world.Driver(), func() {})
			}
		})
	}
}

// Forks of before, which no journal knows any more, are gone before others get
// their names, and before the batch says that it is done, however long that
// takes.
func TestLeftoversGoFirst(t *testing.T) {
	c := newMachine(t)
	g, hooks := gateAt(4)
	c.restart(fake.Faulty(c.world.Driver(), hooks, nil), func() {})
	b := c.start(6)
	<-g.reached
	for r, err := range b.Records(t.Context(), 0) {
		check(t, err)
		if r.Item != nil {
			break // one is ready
		}
	}
	path := filepath.Join(c.home.Batches(), string(b.ID()), "journal.jsonl")
	var removed atomic.Int32
	slow := fake.Hooks{fake.OpDestroy: func(ctx context.Context, _ fake.Call) error {
		removed.Add(1)
		select { // time enough for a fork that does not wait
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
		return nil
	}}
	c.restart(fake.Faulty(c.world.Driver(), slow, nil), func() { check(t, os.WriteFile(path, nil, 0o600)) })
	if s := c.ended(b.ID(), 6); s.OK != 6 || removed.Load() == 0 {
		t.Errorf("%+v, %d removed", s, removed.Load())
	}
	v, err := c.m.Get(b.ID())
	check(t, err)
	if i, _, _, _ := v.Info(); !i.Damaged || !strings.Contains(i.Note, "journal") {
		t.Errorf("of the lost journal it tells %+v", i)
	}
}

// A journal means nothing under other rules: such a batch is left where it
// was, and its forks run.
func TestLeavesABatchOfOtherRules(t *testing.T) {
	c := newMachine(t)
	g, hooks := gateAt(4)
	c.restart(fake.Faulty(c.world.Driver(), hooks, nil), func() {})
	b := c.start(6)
	<-g.reached
	path := filepath.Join(c.home.Batches(), string(b.ID()), "batch.json")
	c.restart(c.world.Driver(), func() {
		was, err := os.ReadFile(path)
		check(t, err)
		is := strings.Replace(string(was), `"rules":2,`, `"rules":1000,`, 1)
		if is == string(was) {
			t.Fatalf("no rules in %s", was)
		}
		check(t, os.WriteFile(path, []byte(is), 0o600))
	})
	v, err := c.m.Get(b.ID())
	check(t, err)
	for r, err := range v.Records(t.Context(), 0) {
		if !errs.Is(err, errs.FailedPrecondition) || !strings.Contains(err.Error(), "another version") {
			t.Errorf("it tells %+v, %v", r, err)
		}
	}
	if i, _, _, _ := v.Info(); i.Note == "" || i.Summary != nil {
		t.Errorf("info: %+v", i)
	}
}
