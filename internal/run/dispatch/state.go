package dispatch

import (
	"container/heap"
	"encoding/json"

	"brood/internal/base/errs"
	"brood/internal/run"
)

// stateFormat is the version of the written state; others are refused.
const stateFormat = 1

// stored is the written form of a Machine. What follows from the tasks, or can
// be counted, is not in it.
type stored struct {
	Format  int          `json:"format"`
	Tasks   []storedTask `json:"tasks"`
	Derive  []int32      `json:"derive,omitempty"`
	Restore []int32      `json:"restore,omitempty"`
	Ready   []int32      `json:"ready,omitempty"`
	Alone   []int32      `json:"alone,omitempty"`
	Again   []int32      `json:"again,omitempty"`
	Ranked  bool         `json:"ranked,omitempty"`
	Keys    int          `json:"deriving,omitempty"` // keys that are being derived
	Wanted  int          `json:"wanted,omitempty"`
	Aborted bool         `json:"aborted,omitempty"`
	Closing bool         `json:"closing,omitempty"`
}

type storedTask struct {
	Stage    stage      `json:"stage,omitempty"`
	Answered bool       `json:"answered,omitempty"`
	Answer   Answer     `json:"answer,omitempty"`
	Unkeyed  int32      `json:"unkeyed,omitempty"`
	Undone   int32      `json:"undone,omitempty"`
	Attempt  int        `json:"attempt,omitempty"`
	Cause    *int32     `json:"cause,omitempty"`
	Unproven bool       `json:"unproven,omitempty"`
	Stopping bool       `json:"stopping,omitempty"`
	Aside    bool       `json:"aside,omitempty"`
	Status   run.Status `json:"status,omitempty"`
}

// Encode writes the state between two steps. Decode goes on from it.
func (m *Machine) Encode() ([]byte, error) {
	s := stored{
		Format: stateFormat, Tasks: make([]storedTask, len(m.tasks)),
		Derive: m.toDerive, Restore: m.toRestore, Ready: m.ready.tasks, Alone: m.alone, Again: m.again, Ranked: m.ready.rank != nil,
		Keys: m.deriving, Wanted: m.wanted, Aborted: m.aborted, Closing: m.closing,
	}
	for i, t := range m.tasks {
		s.Tasks[i] = storedTask{
			Stage: t.stage, Answered: t.answered, Answer: t.answer, Unkeyed: t.unkeyed, Undone: t.undone,
			Attempt: t.attempt, Unproven: t.unproven, Stopping: t.stopping, Aside: t.aside, Status: t.status,
		}
		if t.cause >= 0 {
			s.Tasks[i].Cause = &t.cause
		}
	}
	return json.Marshal(s)
}

// Decode makes the decider of a run that goes on from a written state. p is
// what New was given.
func Decode(p Params, b []byte) (*Machine, error) {
	var s stored
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, errs.New(errs.DataLoss, "the state of a run: %w", err)
	}
	if s.Format != stateFormat {
		return nil, errs.New(errs.Unsupported, "the state of a run has format %d and this brood reads %d", s.Format, stateFormat)
	}
	m, err := New(p)
	if err != nil {
		return nil, err
	}
	if len(s.Tasks) != len(m.tasks) {
		return nil, errs.New(errs.DataLoss, "the state of a run has %d tasks and the run %d", len(s.Tasks), len(m.tasks))
	}
	for _, list := range [][]int32{s.Derive, s.Restore, s.Ready, s.Alone, s.Again} {
		for _, i := range list {
			if int(i) < 0 || int(i) >= len(m.tasks) {
				return nil, errs.New(errs.DataLoss, "the state of a run names task %d of %d", i, len(m.tasks))
			}
		}
	}
	m.toDerive, m.toRestore, m.alone, m.again, m.deriving, m.wanted = s.Derive, s.Restore, s.Alone, s.Again, s.Keys, s.Wanted
	m.aborted, m.closing = s.Aborted, s.Closing
	if err := m.read(s.Tasks); err != nil {
		return nil, err
	}
	m.ready.tasks = s.Ready
	if s.Ranked {
		m.ready.rank = ranks(m.p, m.dependants)
	}
	heap.Init(&m.ready)
	return m, nil
}

// read takes the tasks over and counts what follows from how they stand.
func (m *Machine) read(tasks []storedTask) error {
	m.open, m.openFinite = 0, 0
	for i, t := range tasks {
		cause := int32(-1)
		if t.Cause != nil {
			cause = *t.Cause
		}
		if t.Stage < waiting || t.Stage > final || int(cause) >= len(tasks) || cause < -1 || t.Stage == final && t.Status == "" {
			return errs.New(errs.DataLoss, "the state of task %d of a run is %+v", i, t)
		}
		m.tasks[i] = state{
			stage: t.Stage, answered: t.Answered, answer: t.Answer, unkeyed: t.Unkeyed, undone: t.Undone,
			attempt: t.Attempt, cause: cause, unproven: t.Unproven, stopping: t.Stopping, aside: t.Aside, status: t.Status,
		}
		endless := m.persistent(int32(i))
		if t.Stage != final {
			m.open++
			if !endless {
				m.openFinite++
			}
		}
		switch {
		case t.Stage == restoring:
			m.restoring++
		case t.Stage == running && !endless && !t.Aside:
			m.executing++
			m.held = m.held || m.p.Tasks[i].Interactive
		}
	}
	return nil
}
