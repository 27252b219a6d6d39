package dispatch

import (
	"slices"

	"brood/internal/run"
)

// Machine is one run's decider.
type Machine struct {
	p          Params
	deps       [][]int32
	dependants [][]int32
	tasks      []state

	toDerive  []int32 // first in, first out
	toRestore []int32
	ready     queue
	standing  []int32 // persistent tasks
	alone     []int32 // interactive tasks that may begin once nothing else runs
	again     []int32 // attempts that waited and want a place again

	deriving, restoring, executing int

	open       int // tasks without an outcome
	openFinite int // those of them that end by themselves
	wanted     int // persistent tasks that the user named and that live
	held       bool
	aborted    bool
	closing    bool // only persistent tasks are left, and they are stopped
	out        []Effect
}

// state is how a task stands.
type state struct {
	stage    stage
	answered bool
	answer   Answer
	unkeyed  int32 // what must happen before its key can be derived
	undone   int32 // dependencies without an outcome
	attempt  int
	cause    int32 // the failure that keeps it from running; -1: none
	unproven bool  // something before it failed, or changed under it
	stopping bool
	aside    bool       // its attempt waits, and has no place
	status   run.Status // set once final
}

type stage int

const (
	waiting stage = iota
	restoring
	running
	queued // in ready, alone or toRestore
	final
)

// New makes the decider of a run. Step(nil) begins it.
func New(p Params) (*Machine, error) {
	deps, err := p.check()
	if err != nil {
		return nil, err
	}
	m := &Machine{p: p, deps: deps, dependants: make([][]int32, len(p.Tasks)), tasks: make([]state, len(p.Tasks)), open: len(p.Tasks)}
	for i := range p.Tasks {
		s := &m.tasks[i]
		s.cause = -1
		s.undone = int32(len(deps[i]))
		for _, d := range deps[i] {
			m.dependants[d] = append(m.dependants[d], int32(i))
			s.unkeyed++
			if m.writesUnseen(d) {
				s.unkeyed++
			}
		}
		if !m.persistent(int32(i)) {
			m.openFinite++
		}
		if s.unkeyed == 0 && !m.persistent(int32(i)) {
			m.toDerive = append(m.toDerive, int32(i))
		}
	}
	return m, nil
}

// writesUnseen says that a task runs every time and may write files that are
// inputs of what comes after it: a generator that is not cached. The keys of
// its dependants are derived when it is done.
func (m *Machine) writesUnseen(i int32) bool {
	t := m.p.Tasks[i]
	return !t.Cache && !m.idle(i)
}

// idle says that there is nothing to run: a group, or a task that is there for
// its key alone.
func (m *Machine) idle(i int32) bool {
	return m.p.Tasks[i].Excluded || m.p.Tasks[i].Command.Empty()
}

func (m *Machine) additive(i int32) bool { return m.p.Additive != nil && m.p.Additive[i] }

func (m *Machine) persistent(i int32) bool {
	return m.p.Tasks[i].Persistent && !m.idle(i)
}

// Done says that every task has its outcome and nothing is owed but keys
// that nobody waits for any more.
func (m *Machine) Done() bool { return m.open == 0 }

// Aborted says that the run was stopped, by Abort or by a failure.
func (m *Machine) Aborted() bool { return m.aborted }

// Busy returns how many tasks run now, persistent ones not counted.
func (m *Machine) Busy() int { return m.executing }

// Step takes an event, nil at the beginning, and returns what is to be done
// now. The slice is good until the next Step.
func (m *Machine) Step(e Event) []Effect {
	m.out = m.out[:0]
	switch e := e.(type) {
	case nil:
		m.begin()
	case Keyed:
		m.keyed(int32(e.Task), e.Answer)
	case Restored:
		m.restored(int32(e.Task), e.OK)
	case Ran:
		m.ran(int32(e.Task), e)
	case Waits:
		m.waits(int32(e.Task))
	case Ready:
		m.goOn(int32(e.Task))
	case Abort:
		m.abort(run.Aborted, -1)
	}
	m.start()
	m.close()
	return m.out
}

func (m *Machine) begin() {
	for i := range m.p.Tasks {
		if m.persistent(int32(i)) && m.tasks[i].undone == 0 {
			m.consider(int32(i))
		}
	}
}

// keyed notes a key, and lets those derive theirs that waited for it.
func (m *Machine) keyed(i int32, a Answer) {
	m.deriving--
	s := &m.tasks[i]
	if s.answered || s.stage == final {
		return
	}
	m.answer(i, a)
}

func (m *Machine) answer(i int32, a Answer) {
	s := &m.tasks[i]
	s.answered, s.answer = true, a
	for _, d := range m.dependants[i] {
		m.unkey(d)
	}
	if a == Hit && !m.additive(i) {
		s.stage = queued
		m.toRestore = append(m.toRestore, i)
		return
	}
	m.consider(i)
}

// unkey counts down what keeps a task's key from being derived.
func (m *Machine) unkey(i int32) {
	s := &m.tasks[i]
	s.unkeyed--
	if s.unkeyed > 0 || m.persistent(i) || s.answered || s.stage == final {
		return
	}
	for _, d := range m.deps[i] {
		if m.tasks[d].answer == NoKey {
			m.answer(i, NoKey)
			return
		}
	}
	m.toDerive = append(m.toDerive, i)
}

// consider moves a task on whose answer is known and whose dependencies may be
// done.
func (m *Machine) consider(i int32) {
	s, t := &m.tasks[i], m.p.Tasks[i]
	if t.Excluded && s.stage == waiting && s.answered {
		s.unproven = true // nobody knows what lies where it would have written
		m.finish(i, run.Success)
		return
	}
	if s.stage != waiting || s.undone > 0 || !s.answered && !m.persistent(i) {
		return
	}
	switch {
	case s.cause >= 0 && m.p.Continue != Always:
		m.finish(i, run.Skipped)
	case s.answer == Hit: // an additive one, which comes after those it adds to
		s.stage = queued
		m.toRestore = append(m.toRestore, i)
	case m.persistent(i):
		s.stage = queued
		m.standing = append(m.standing, i)
	case t.Command.Empty():
		m.finish(i, run.Success)
	default:
		m.enqueue(i)
	}
}

func (m *Machine) enqueue(i int32) {
	m.tasks[i].stage = queued
	if m.p.Tasks[i].Interactive {
		m.alone = append(m.alone, i)
		return
	}
	m.push(i)
}

func (m *Machine) run(i int32) {
	s := &m.tasks[i]
	s.stage = running
	s.attempt++
	m.out = append(m.out, Run{Task: int(i), Attempt: s.attempt, Save: m.maySave(i)})
}

// maySave says whether a success may be saved: the task is cached, has a key,
// and nothing before it failed or changed.
func (m *Machine) maySave(i int32) bool {
	s := &m.tasks[i]
	return m.p.Tasks[i].Cache && !s.unproven && s.answered && s.answer != NoKey
}

func (m *Machine) restored(i int32, ok bool) {
	m.restoring--
	s := &m.tasks[i]
	switch {
	case ok:
		s.unproven = false // the key names all that led to it
		m.finish(i, run.Cached)
	case m.aborted:
		m.finish(i, run.Aborted)
	default:
		s.answer, s.stage = Miss, waiting
		m.consider(i)
	}
}

func (m *Machine) ran(i int32, e Ran) {
	s, t := &m.tasks[i], m.p.Tasks[i]
	if s.aside {
		s.aside = false
		m.again = slices.DeleteFunc(m.again, func(a int32) bool { return a == i })
	} else if !m.persistent(i) {
		m.executing--
		if t.Interactive {
			m.held = false
		}
	}
	s.unproven = s.unproven || e.Unproven
	switch {
	case e.Ending == Succeeded:
		m.finish(i, run.Success)
	case e.Ending == Found:
		m.finish(i, run.Cached)
	case s.stopping && m.closing && !m.aborted:
		m.finish(i, run.Success) // a persistent task that the end of the run stopped
	case m.aborted:
		m.finish(i, run.Aborted)
	case e.Ending == Broke && !m.persistent(i) && m.retries(i) >= s.attempt:
		m.enqueue(i)
	default:
		m.fail(i)
	}
}

// waits takes an attempt's place away while it waits.
func (m *Machine) waits(i int32) {
	s := &m.tasks[i]
	if s.stage == running && !s.aside && !m.persistent(i) && !m.p.Tasks[i].Interactive {
		s.aside = true
		m.executing--
	}
}

// goOn lets an attempt go on once it has a place.
func (m *Machine) goOn(i int32) {
	s := &m.tasks[i]
	switch {
	case s.stage != running || s.stopping:
	case s.aside:
		m.again = append(m.again, i)
	default:
		m.out = append(m.out, Go{Task: int(i)})
	}
}

func (m *Machine) retries(i int32) int {
	if m.p.Retries == nil {
		return 0
	}
	return m.p.Retries[i]
}

// fail gives a task its failure, and the run what follows from it.
func (m *Machine) fail(i int32) {
	m.finish(i, run.Failed)
	if m.p.Continue == Never {
		m.abort(run.Aborted, i)
	}
}

// finish gives a task its outcome and tells its dependants.
func (m *Machine) finish(i int32, status run.Status) {
	todo := []int32{i}
	m.settle(i, status)
	for len(todo) > 0 { // skipping goes down chains that may be long
		i, todo = todo[len(todo)-1], todo[:len(todo)-1]
		for _, d := range m.dependants[i] {
			m.inherit(d, i)
			if m.tasks[d].undone > 0 || m.tasks[d].stage != waiting {
				continue
			}
			if m.skips(d) {
				m.settle(d, run.Skipped)
				todo = append(todo, d)
				continue
			}
			if m.groupDone(d) {
				m.settle(d, run.Success)
				todo = append(todo, d)
				continue
			}
			m.consider(d)
		}
	}
}

// skips and groupDone are what consider does without needing a place; here
// they keep the walk free of recursion.
func (m *Machine) skips(i int32) bool {
	s := &m.tasks[i]
	return (s.answered || m.persistent(i)) && s.cause >= 0 && m.p.Continue != Always
}

func (m *Machine) groupDone(i int32) bool {
	s := &m.tasks[i]
	return s.answered && s.answer != Hit && m.idle(i)
}

// inherit tells a task of the outcome of one that it waits on.
func (m *Machine) inherit(i, from int32) {
	s, f := &m.tasks[i], &m.tasks[from]
	s.undone--
	s.unproven = s.unproven || f.unproven
	switch {
	case f.status == run.Failed || f.status == run.Aborted:
		s.unproven = true
		if s.cause < 0 {
			s.cause = from
		}
	case f.cause >= 0 && f.status != run.Cached:
		s.unproven = true
		if s.cause < 0 && f.status == run.Skipped {
			s.cause = f.cause
		}
	}
	if m.writesUnseen(from) {
		m.unkey(i)
	}
}

func (m *Machine) settle(i int32, status run.Status) {
	s := &m.tasks[i]
	s.stage, s.status = final, status
	m.open--
	t := m.p.Tasks[i]
	if !m.persistent(i) {
		m.openFinite--
	} else if t.Requested && s.attempt > 0 {
		m.wanted--
	}
	end := End{Task: int(i), Status: status, Attempts: s.attempt, Cause: -1}
	if status == run.Skipped {
		end.Cause = int(s.cause)
	}
	m.out = append(m.out, end)
}
