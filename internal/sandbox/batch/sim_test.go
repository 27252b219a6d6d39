package batch_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// The simulation plays whole batches against a world of machines that are
// slow, full, silent or gone, with answers that come late, twice or out of
// order, daemons that die at any point, and callers that cancel. One seed is
// one such story; the same seed tells the same story.
//
//	BROOD_SIM_SEEDS=10000 go test -run Sim   plays that many
//	go test -run Sim -sim.seed=4711 -v       plays one, with its transcript
//
// A failing seed is kept in testdata/seeds and played first from then on.
var oneSeed = flag.Int64("sim.seed", -1, "play this one seed of the simulation and tell all")

const (
	defaultSeeds = 2000
	chunks       = 8
	seedFolder   = "testdata/seeds"
)

func TestSim(t *testing.T) {
	if *oneSeed >= 0 {
		w := newWorld(uint64(*oneSeed))
		w.tell = true
		err := w.play()
		t.Logf("%s", w.told.String())
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, seed := range keptSeeds(t) {
		if err := newWorld(seed).play(); err != nil {
			t.Errorf("kept seed %d: %v", seed, err)
		}
	}
	n := seedCount(t)
	var all tally
	t.Cleanup(func() { all.check(t, n) })
	for c := range chunks {
		t.Run(fmt.Sprintf("part %d", c), func(t *testing.T) {
			t.Parallel()
			for seed := c; seed < n; seed += chunks {
				w := newWorld(uint64(seed))
				if err := w.play(); err != nil {
					keepSeed(t, uint64(seed))
					t.Fatalf("seed %d: %v\nplay it alone: go test ./internal/sandbox/batch -run Sim -sim.seed=%d -v", seed, err, seed)
				}
				all.add(w)
			}
		})
	}
}

// tally counts what the stories were about, so that a world in which nothing
// ever happens is noticed.
type tally struct {
	mu  sync.Mutex
	met map[string]int
}

func (s *tally) add(w *world) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.met == nil {
		s.met = map[string]int{}
	}
	for what, n := range w.check.met {
		s.met[what] += n
	}
}

func (s *tally) check(t *testing.T, seeds int) {
	t.Logf("%v", s.met)
	if seeds < 2000 || t.Failed() {
		return
	}
	for _, what := range []string{
		"ready", "own", "no_host", "no_capacity", "host_failed", "sync_failed", "fork_failed", "attempt>1", "synced", "restart", "restart lost a step",
		"cancel", "stale removed", "silent", "crash", "partial grant", "refused", "split", "temp deleted", "done", "interrupted twice",
	} {
		if s.met[what] == 0 {
			t.Errorf("no story met %q", what)
		}
	}
}

func seedCount(t *testing.T) int {
	if v := os.Getenv("BROOD_SIM_SEEDS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatalf("BROOD_SIM_SEEDS=%q: %v", v, err)
		}
		return n
	}
	if testing.Short() {
		return 300
	}
	return defaultSeeds
}

func keptSeeds(t *testing.T) []uint64 {
	files, err := os.ReadDir(seedFolder)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var out []uint64
	for _, f := range files {
		if seed, err := strconv.ParseUint(f.Name(), 10, 64); err == nil {
			out = append(out, seed)
		}
	}
	return out
}

func keepSeed(t *testing.T, seed uint64) {
	if err := os.MkdirAll(seedFolder, 0o755); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(seedFolder, strconv.FormatUint(seed, 10)), nil, 0o644); err != nil {
		t.Error(err)
	}
}
