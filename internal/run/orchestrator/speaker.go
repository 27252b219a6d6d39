package orchestrator

import (
	"context"
	"time"

	"brood/internal/base/life"
)

const (
	// speakerQueue is how many events wait for the listener before the run does.
	speakerQueue = 1024
	// speakerGrace is how long an aborted run waits for a listener that takes
	// nothing.
	speakerGrace = 2 * time.Second
)

// speaker calls the listener from a goroutine of its own, so that a listener
// that is stuck (a pipe that nobody reads) does not keep the loop from
// aborting.
type speaker struct {
	events chan spoken
	group  *life.Group
	over   <-chan struct{} // the run is aborted
	stuck  bool
}

type spoken struct {
	at time.Time
	e  Event
	// heard is closed when the listener has returned; nil: nobody waits for that.
	heard chan<- struct{}
}

func newSpeaker(over <-chan struct{}, listen func(time.Time, Event)) *speaker {
	s := &speaker{events: make(chan spoken, speakerQueue), group: life.NewGroup(context.Background()), over: over}
	if listen == nil {
		listen = func(time.Time, Event) {}
	}
	s.group.Go("listener", func(context.Context) error {
		for m := range s.events {
			listen(m.at, m.e)
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

// tell is say for an event after which something waits until it was heard. What
// a stuck listener does not hear is never heard.
func (s *speaker) tell(e Event) (heard <-chan struct{}) {
	c := make(chan struct{})
	s.put(spoken{at: time.Now(), e: e, heard: c})
	return c
}

func (s *speaker) put(m spoken) {
	if s.stuck {
		return
	}
	select {
	case s.events <- m:
		return
	default:
	}
	select {
	case s.events <- m:
		return
	case <-s.over:
	}
	grace := time.NewTimer(speakerGrace)
	defer grace.Stop()
	select {
	case s.events <- m:
	case <-grace.C:
		s.stuck = true
	}
}

// close waits until the listener has heard everything, unless it is stuck.
func (s *speaker) close() {
	close(s.events)
	if !s.stuck {
		_ = s.group.Wait() // the listener returns no error
	}
}
