package orchestrator

import (
	"fmt"
	"time"

	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/dispatch"
)

// note takes what a message brings besides its event, and tells the listener.
func (r *runner) note(msg message) {
	s, t := &r.state[msg.task], r.tasks[msg.task]
	switch e := msg.event.(type) {
	case dispatch.Keyed:
		r.noteKey(s, t, msg)
	case dispatch.Restored:
		s.touched, s.ended = msg.touched, msg.ended
		if !e.OK {
			if !r.m.Aborted() {
				s.cache = cacheMiss
				r.emit(Keyed{Task: t.ID, Key: s.key, Cache: s.cache, Unrestored: msg.err.Error()})
			}
			s.hit = nil
			return
		}
	case dispatch.Ran:
		r.noteAttempt(s, t, msg)
	}
	if len(msg.replay) > 0 {
		r.emit(Output{Task: t.ID, Text: string(msg.replay), Replayed: true})
	}
}

// goesOn tells the listener how an effect goes on.
func (r *runner) goesOn(msg message) {
	t := r.tasks[msg.task].ID
	if msg.waits {
		r.emit(Waiting{Task: t, For: msg.beside})
		return
	}
	s := &r.state[msg.task]
	r.live[msg.task] = s
	r.speak.tell(Started{Task: t, Attempt: msg.starts, Key: s.key}, msg.heard)
}

func (r *runner) noteKey(s *task, t *run.Task, msg message) {
	s.key, s.hit, s.cache = msg.key, msg.hit, msg.cache
	if uncounted(t) || r.m.Done() {
		return
	}
	if msg.err != nil && !r.m.Aborted() {
		r.emit(Warning{Task: t.ID, Message: fmt.Sprintf("no key, so neither it nor what waits on it is cached: %v", msg.err)})
	}
	r.emit(Keyed{Task: t.ID, Key: s.key, Cache: s.cache, Remote: s.hit != nil && s.hit.Remote()})
}

func (r *runner) noteAttempt(s *task, t *run.Task, msg message) {
	r.flush(msg.task, true)
	delete(r.live, msg.task)
	s.cancel()
	s.ended, s.err, s.unsaved = msg.ended, msg.err, msg.unsaved
	if !t.Cache && !t.Persistent {
		r.generated.Store(msg.ended.UnixNano())
	}
	if s.result.Began.IsZero() && msg.entered.After(s.began) {
		s.began = msg.entered // another run's time is not this task's
	}
	if msg.hit != nil { // another run made it
		s.hit, s.touched, s.cache = msg.hit, msg.touched, cacheHit
		r.emit(Keyed{Task: t.ID, Key: s.key, Cache: s.cache, Remote: s.hit.Remote()})
	}
	if before := s.result; !before.Began.IsZero() { // attempts add up
		msg.result.Usage.CPU += before.Usage.CPU
		msg.result.Usage.PeakMemory = max(msg.result.Usage.PeakMemory, before.Usage.PeakMemory)
	}
	s.result = *msg.result
	if err := s.log.close(); err != nil {
		r.emit(Warning{Task: t.ID, Message: fmt.Sprintf("its output: %v", err)})
	}
	s.log = nil
}

// uncounted says that a task is there for others alone.
func uncounted(t *run.Task) bool { return t.Excluded || t.Command.Empty() }

// pump passes on what the running tasks wrote. Where the listener does not keep
// up, tasks that write much wait, and the run does not.
func (r *runner) pump() {
	if r.speak.behind() {
		return
	}
	for i := range r.live {
		r.flush(i, false)
	}
}

func (r *runner) flush(i int, last bool) {
	if text := r.state[i].log.take(last); len(text) > 0 {
		r.emit(Output{Task: r.tasks[i].ID, Text: string(text)})
	}
}

// end writes a task's outcome into the books.
func (r *runner) end(e dispatch.End) {
	s, t := &r.state[e.Task], r.tasks[e.Task]
	if uncounted(t) {
		return
	}
	ended := Ended{Task: t.ID, Status: e.Status, Key: s.key, Attempts: e.Attempts, Unsaved: s.unsaved}
	if !s.began.IsZero() {
		ended.BeganMS, ended.TookMS = s.began.Sub(r.began).Milliseconds(), s.ended.Sub(s.began).Milliseconds()
	}
	if e.Cause >= 0 {
		ended.Cause = r.tasks[e.Cause].ID
	}
	if e.Status == run.Cached {
		ended.Attempts = 0 // what another run made meanwhile
	}
	if ended.Attempts > 0 {
		ended.Exit, ended.Signal, ended.TimedOut = s.result.Exit, s.result.Signal, s.result.TimedOut
		ended.measured(s.result.Usage)
		ended.RanMS = s.result.Ended.Sub(s.result.Began).Milliseconds()
	}
	if s.err != nil {
		ended.Error = s.err.Error()
	}
	if e.Status == run.Cached {
		ended.SavedMS, ended.Remote, ended.Touched = s.hit.Took().Milliseconds(), s.hit.Remote(), s.touched
		ended.measured(s.hit.Usage())
	}
	s.hit = nil
	r.report.Ended = append(r.report.Ended, ended)
	r.emit(ended)
}

func (e *Ended) measured(u run.Usage) {
	e.CPUMS, e.PeakMemory, e.Sampled = u.CPU.Milliseconds(), u.PeakMemory, u.Sampled
}

// Report is all that is known of a run after it.
type Report struct {
	At time.Time `json:"at"`
	Began
	Ended    []Ended  `json:"outcomes"` // in the order in which the tasks ended
	Finished Finished `json:"summary"`
}

// OK says that every task that was to run did, and succeeded.
func (r *Report) OK() bool { return r.Finished.Status == run.Success }

// outcomes are the tasks' outcomes by their IDs.
func (r *Report) outcomes() map[id.Task]*Ended {
	all := make(map[id.Task]*Ended, len(r.Ended))
	for i := range r.Ended {
		all[r.Ended[i].Task] = &r.Ended[i]
	}
	return all
}
