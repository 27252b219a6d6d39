package orchestrator

import (
	"context"
	"sync/atomic"
	"time"

	"brood/internal/base/life"
)

const (
	// speakerQueue is how many events wait for the listener before the run does.
	speakerQueue = 1024
	// speakerMost is how much output of tasks waits with them.
	speakerMost = 16 << 20
	// speakerGrace is how long an aborted run waits for a listener that takes
	// nothing.
	speakerGrace = 2 * time.Second
)

// speaker calls the listener from a goroutine of its own, so that a listener
// that is stuck (a pipe that nobody reads) does not keep the loop from
// aborting.
type speaker struct {
	events chan spoken
	held   atomic.Int64  // bytes of output in events
	freed  chan struct{} // the listener has heard something
	done   chan struct{} // it has heard everything
	group  *life.Group
	over   <-chan struct{} // the run is aborted
	stuck  bool
}

type spoken struct {
	at time.Time
	e  Event
	// size is how many bytes of output it has.
	size int64
	// heard is closed when the listener has returned; nil: nobody waits for that.
	heard chan<- struct{}
}

func newSpeaker(over <-chan struct{}, listen func(time.Time, Event)) *speaker {
	s := &speaker{events: make(chan spoken, speakerQueue), freed: make(chan struct{}, 1), done: make(chan struct{}), group: life.NewGroup(context.Background()), over: over}
	if listen == nil {
		listen = func(time.Time, Event) {}
	}
	s.group.Go("listener", func(context.Context) error {
		defer close(s.done)
		for m := range s.events {
			listen(m.at, m.e)
			s.release(m.size)
			if m.heard != nil {
				close(m.heard)
			}
		}
		return nil
	})
	return s
}

// say hands an event on, when it must after waiting. Only the loop calls it.
func (s *speaker) say(e Event) { s.put(spoken{at: time.Now(), e: e}) }

// tell is say for an event after which something waits until heard is closed.
// What a stuck listener does not hear is never heard.
func (s *speaker) tell(e Event, heard chan<- struct{}) {
	s.put(spoken{at: time.Now(), e: e, heard: heard})
}

func (s *speaker) put(m spoken) {
	if s.stuck {
		return
	}
	if o, ok := m.e.(Output); ok {
		m.size = int64(len(o.Text))
	}
	s.held.Add(m.size)
	over := s.over
	var grace <-chan time.Time
	for {
		events := s.events
		if before := s.held.Load() - m.size; m.size > 0 && before > 0 && before+m.size > speakerMost {
			events = nil // no room, however few they are
		}
		select {
		case events <- m:
			return
		default:
		}
		select {
		case events <- m:
			return
		case <-s.freed:
		case <-over:
			over, grace = nil, time.After(speakerGrace)
		case <-grace:
			s.stuck = true
			return
		}
	}
}

// release is told that an event with so much output was heard.
func (s *speaker) release(size int64) {
	s.held.Add(-size)
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

// behind says that so much output waits that more should not follow yet. An
// aborted run is not kept from its end by that.
func (s *speaker) behind() bool {
	select {
	case <-s.over:
		return false
	default:
		return !s.stuck && s.held.Load() > speakerMost/2
	}
}

// close waits until the listener has heard everything. When the run is aborted
// one that hears nothing for a while is stuck, and left to itself.
func (s *speaker) close() {
	close(s.events)
	over := s.over
	var grace <-chan time.Time
	for !s.stuck {
		select {
		case <-s.done:
			_ = s.group.Wait() // the listener returns no error
			return
		case <-s.freed:
			if grace != nil {
				grace = time.After(speakerGrace)
			}
		case <-over:
			over, grace = nil, time.After(speakerGrace)
		case <-grace:
			s.stuck = true
		}
	}
}
