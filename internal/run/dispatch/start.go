package dispatch

import (
	"container/heap"

	"brood/internal/run"
)

func (m *Machine) push(i int32) { heap.Push(&m.ready, i) }

// start begins what has a place.
func (m *Machine) start() {
	if m.aborted {
		return
	}
	for _, i := range m.standing {
		if m.p.Tasks[i].Requested {
			m.wanted++
		}
		m.run(i)
	}
	m.standing = m.standing[:0]
	for m.executing < m.p.Executions && !m.held && len(m.again) > 0 {
		i := m.again[0]
		m.again = m.again[1:]
		m.executing++
		m.tasks[i].aside = false
		m.out = append(m.out, Go{Task: int(i)})
	}
	for m.executing < m.p.Executions && !m.held && m.ready.Len() > 0 {
		m.rank()
		m.executing++
		m.run(heap.Pop(&m.ready).(int32))
	}
	if m.executing == 0 && m.ready.Len() == 0 && len(m.alone) > 0 {
		i := m.alone[0]
		m.alone = m.alone[1:]
		m.executing++
		m.held = true
		m.run(i)
	}
	for m.restoring < m.p.Restores && len(m.toRestore) > 0 {
		i := m.toRestore[0]
		m.toRestore = m.toRestore[1:]
		m.restoring++
		m.tasks[i].stage = restoring
		m.out = append(m.out, Restore{Task: int(i)})
	}
	for m.deriving < m.p.Derivations && len(m.toDerive) > 0 {
		i := m.toDerive[0]
		m.toDerive = m.toDerive[1:]
		m.deriving++
		m.out = append(m.out, Derive{Task: int(i)})
	}
}

// rank orders the queue the first time that not all of it has a place. A warm
// run, which executes little, never needs to know.
func (m *Machine) rank() {
	if m.ready.rank != nil || m.ready.Len() <= m.p.Executions-m.executing {
		return
	}
	m.ready.rank = ranks(m.p, m.dependants)
	heap.Init(&m.ready)
}

// abort ends whatever has not begun and asks for the end of what has. A failure
// that caused it is told to those that wait on the failed task: they are
// skipped, all others aborted.
func (m *Machine) abort(status run.Status, failed int32) {
	if m.aborted {
		return
	}
	m.aborted = true
	m.toDerive, m.toRestore, m.standing, m.alone, m.again, m.ready.tasks = nil, nil, nil, nil, nil, nil
	behind := m.behind(failed)
	for i := range m.tasks {
		s := &m.tasks[i]
		switch s.stage {
		case final, restoring:
		case running:
			m.stop(int32(i))
		default:
			if behind != nil && behind[i] {
				s.cause = failed
				m.settle(int32(i), run.Skipped)
				continue
			}
			m.settle(int32(i), status)
		}
	}
}

// behind marks the tasks that wait on one, directly or not.
func (m *Machine) behind(i int32) []bool {
	if i < 0 {
		return nil
	}
	marks := make([]bool, len(m.tasks))
	marks[i] = true
	for at := int(i); at < len(marks); at++ {
		if marks[at] {
			for _, d := range m.dependants[at] {
				marks[d] = true
			}
		}
	}
	return marks
}

func (m *Machine) stop(i int32) {
	if s := &m.tasks[i]; !s.stopping {
		s.stopping = true
		m.out = append(m.out, Stop{Task: int(i)})
	}
}

// close stops the persistent tasks once everything else is done and none of
// them is what the user asked for.
func (m *Machine) close() {
	if m.aborted || m.closing || m.openFinite > 0 || m.wanted > 0 || m.open == 0 {
		return
	}
	m.closing = true
	for i := range m.tasks {
		if m.tasks[i].stage == running {
			m.stop(int32(i))
		}
	}
}
