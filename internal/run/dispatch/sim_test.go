package dispatch_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/dispatch"
)

// The simulation plays whole runs over random graphs: hits and misses, restores
// that fail, keys that cannot be derived, failures, retries, persistent and
// interactive tasks, and aborts at any moment. One seed is one story.
//
//	BROOD_SIM_SEEDS=10000 go test -run Sim   plays that many
//	go test -run Sim -sim.seed=4711 -v       plays one
var oneSeed = flag.Int64("sim.seed", -1, "play this one seed of the simulation")

func TestSim(t *testing.T) {
	if *oneSeed >= 0 {
		w := newWorld(uint64(*oneSeed))
		w.tell = t.Logf
		if err := w.play(); err != nil {
			t.Fatal(err)
		}
		return
	}
	seeds := 3000
	if s := os.Getenv("BROOD_SIM_SEEDS"); s != "" {
		seeds, _ = strconv.Atoi(s)
	}
	met := map[string]int{}
	for seed := range seeds {
		w := newWorld(uint64(seed))
		if err := w.play(); err != nil {
			t.Fatalf("seed %d: %v\nplay it alone: go test ./internal/run/dispatch -run Sim -sim.seed=%d -v", seed, err, seed)
		}
		for what, n := range w.met {
			met[what] += n
		}
	}
	for _, what := range []string{"success", "cached", "failed", "skipped", "aborted", "retry", "late miss", "no key", "alone", "persistent", "ran after failure", "unsaved", "waits", "went on"} {
		if met[what] == 0 {
			t.Errorf("in %d stories there was never %q", seeds, what)
		}
	}
}

// world is the shell of one story, and what it checks.
type world struct {
	rand     *rand.Rand
	p        dispatch.Params
	index    map[id.Task]int
	m        *dispatch.Machine
	owed     []dispatch.Event
	running  map[int]bool
	aside    map[int]bool // those of them that wait
	deriving map[int]bool
	restores map[int]bool
	ends     map[int]dispatch.End
	tries    map[int]int
	last     map[int]dispatch.Ending // of its last attempt
	proven   map[int]bool            // its outputs are what its key says
	abortAt  int
	aborted  bool
	asked    map[int]bool // waited, and want to go on
	saves    map[int]bool // the last attempt may be saved
	met      map[string]int
	tell     func(string, ...any)
}

func newWorld(seed uint64) *world {
	w := &world{
		rand: rand.New(rand.NewPCG(seed, 7)), index: map[id.Task]int{}, running: map[int]bool{}, aside: map[int]bool{}, asked: map[int]bool{}, saves: map[int]bool{}, deriving: map[int]bool{}, restores: map[int]bool{},
		ends: map[int]dispatch.End{}, tries: map[int]int{}, last: map[int]dispatch.Ending{}, proven: map[int]bool{}, met: map[string]int{}, abortAt: -1, tell: func(string, ...any) {},
	}
	n := w.rand.IntN(30)
	for i := range n {
		w.addTask(i)
	}
	w.p.Continue = []dispatch.Continue{dispatch.Never, dispatch.Dependents, dispatch.Always}[w.rand.IntN(3)]
	w.p.Executions, w.p.Restores, w.p.Derivations = 1+w.rand.IntN(4), 1+w.rand.IntN(5), 1+w.rand.IntN(5)
	if w.rand.IntN(4) == 0 {
		w.abortAt = w.rand.IntN(60)
	}
	return w
}

func (w *world) addTask(i int) {
	t := &run.Task{ID: id.Task(fmt.Sprintf("p#t%d", i)), Command: run.Command{Line: "x"}}
	t.Cache = w.rand.IntN(4) > 0
	t.Requested = w.rand.IntN(2) == 0
	w.p.Additive = append(w.p.Additive, w.rand.IntN(8) == 0)
	switch w.rand.IntN(12) {
	case 1:
		t.Persistent, t.Cache = true, false
	case 2:
		t.Interactive, t.Cache = true, false
	}
	if w.rand.IntN(10) == 0 {
		t.Command = run.Command{}
	}
	t.Excluded = w.rand.IntN(15) == 0
	for d := range i {
		if w.rand.IntN(6) == 0 && !w.persistent(d) {
			t.Deps = append(t.Deps, w.p.Tasks[d].ID)
		}
	}
	w.index[t.ID] = i
	w.p.Tasks = append(w.p.Tasks, t)
	w.p.Retries = append(w.p.Retries, max(0, w.rand.IntN(6)-3))
	w.p.Expected = append(w.p.Expected, time.Duration(w.rand.IntN(3))*time.Second)
}

func (w *world) play() error {
	m, err := dispatch.New(w.p)
	if err != nil {
		return err
	}
	w.m = m
	if err := w.perform(m.Step(nil)); err != nil {
		return err
	}
	for step := 0; !m.Done(); step++ {
		if step > 20*len(w.p.Tasks)+100 {
			return fmt.Errorf("the run does not end")
		}
		e, err := w.next(step)
		if err != nil {
			return err
		}
		w.tell("event  %T%+v", e, e)
		if w.rand.IntN(4) == 0 { // what is decided next does not depend on who decides it
			if m, err = again(w.p, m); err != nil {
				return err
			}
			w.m = m
		}
		if err := w.perform(m.Step(e)); err != nil {
			return err
		}
	}
	return w.final()
}

// again is a decider that was written and read back.
func again(p dispatch.Params, m *dispatch.Machine) (*dispatch.Machine, error) {
	b, err := m.Encode()
	if err != nil {
		return nil, err
	}
	copied, err := dispatch.Decode(p, b)
	if err != nil {
		return nil, err
	}
	back, err := copied.Encode()
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(b, back) {
		return nil, fmt.Errorf("the state\n%s\nwas read as\n%s", b, back)
	}
	return copied, nil
}

// next picks what happens: an answer that is owed, in any order, or an abort.
func (w *world) next(step int) (dispatch.Event, error) {
	if step == w.abortAt || len(w.owed) == 0 && w.onlyPersistent() {
		w.aborted = true
		return dispatch.Abort{}, nil
	}
	if len(w.owed) == 0 {
		return nil, fmt.Errorf("nothing is owed and the run is not done")
	}
	at := w.rand.IntN(len(w.owed))
	e := w.owed[at]
	w.owed = append(w.owed[:at], w.owed[at+1:]...)
	switch e := e.(type) {
	case dispatch.Keyed:
		delete(w.deriving, e.Task)
		if e.Answer == dispatch.NoKey {
			w.met["no key"]++
		}
	case dispatch.Restored:
		delete(w.restores, e.Task)
		if !e.OK {
			w.met["late miss"]++
		}
		w.proven[e.Task] = e.OK
	case dispatch.Waits:
		if !w.p.Tasks[e.Task].Interactive {
			w.aside[e.Task] = true
		}
		if w.met["waits"]++; w.rand.IntN(3) == 0 { // another run made it
			w.owe(dispatch.Ran{Task: e.Task, Ending: dispatch.Found})
			w.last[e.Task], w.proven[e.Task] = dispatch.Found, true
		} else {
			w.owe(dispatch.Ready(e))
		}
	case dispatch.Ready:
		w.asked[e.Task] = true
	case dispatch.Ran:
		delete(w.running, e.Task)
		delete(w.aside, e.Task)
		delete(w.asked, e.Task)
		w.owed = slices.DeleteFunc(w.owed, func(o dispatch.Event) bool { // a stopped attempt says no more
			waits, isWaits := o.(dispatch.Waits)
			ready, isReady := o.(dispatch.Ready)
			return isWaits && waits.Task == e.Task || isReady && ready.Task == e.Task
		})
	}
	return e, nil
}

// onlyPersistent says that the story would go on for ever: a person ends it.
func (w *world) onlyPersistent() bool {
	for i := range w.running {
		if !w.persistent(i) {
			return false
		}
	}
	return len(w.running) > 0
}

func (w *world) persistent(i int) bool {
	t := w.p.Tasks[i]
	return t.Persistent && !t.Excluded && !t.Command.Empty()
}

func (w *world) perform(effects []dispatch.Effect) error {
	for _, e := range effects {
		w.tell("effect %T%+v", e, e)
		if err := w.one(e); err != nil {
			return fmt.Errorf("%T%+v: %w", e, e, err)
		}
	}
	return nil
}

func (w *world) one(e dispatch.Effect) error {
	switch e := e.(type) {
	case dispatch.Derive:
		return w.derive(e)
	case dispatch.Restore:
		return w.restore(e)
	case dispatch.Run:
		return w.run(e)
	case dispatch.Go:
		return w.goOn(e)
	case dispatch.Stop:
		if !w.running[e.Task] {
			return fmt.Errorf("stops what does not run")
		}
		w.owe(dispatch.Ran{Task: e.Task, Ending: w.ending()})
	case dispatch.End:
		return w.end(e)
	}
	return nil
}

func (w *world) ending() dispatch.Ending {
	return []dispatch.Ending{dispatch.Succeeded, dispatch.Succeeded, dispatch.Succeeded, dispatch.Broke, dispatch.Unable, dispatch.Interrupted, dispatch.Found}[w.rand.IntN(7)]
}

// owe notes an answer; a task's process ends once.
func (w *world) owe(e dispatch.Event) {
	if r, ok := e.(dispatch.Ran); ok {
		for _, o := range w.owed {
			if was, ok := o.(dispatch.Ran); ok && was.Task == r.Task {
				return
			}
		}
	}
	w.owed = append(w.owed, e)
}
