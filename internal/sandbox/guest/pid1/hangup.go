//go:build linux

package pid1

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"
)

const (
	// hangUpGrace is how long an exec that is to be hung up waits for
	// somebody to attach again: long enough for a client to find a daemon
	// that was started again, short enough that what nobody wants does not
	// keep a processor busy.
	hangUpGrace = 10 * time.Second
	// killGrace is how long a program that was hung up may take to end.
	killGrace = 2 * time.Second
)

// presence says since when the host is there. Between a daemon's end and the
// next one nobody can attach, so that no grace runs.
type presence struct {
	mu     sync.Mutex
	since  time.Time     // of the session; zero when there is none
	change chan struct{} // closed and replaced when since changes
}

func newPresence() *presence { return &presence{change: make(chan struct{})} }

func (p *presence) set(since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = since
	close(p.change)
	p.change = make(chan struct{})
}

func (p *presence) get() (since time.Time, change <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.since, p.change
}

// looked says that what matters to a hang-up has changed. x.mu is held.
func (x *exec) looked() {
	close(x.looks)
	x.looks = make(chan struct{})
	x.changed()
}

// forsaken reports since when nobody has attached to a program that is to be
// hung up then; over says that it never will be.
func (x *exec) forsaken() (since time.Time, over bool, change <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.attached == nil {
		since = x.left
	}
	return since, x.discard || x.finished, x.looks
}

// awaitHangUp hangs an exec up when its host is there and nobody has attached
// for the grace. It returns when the exec is over or belongs to no host.
func (s *Server) awaitHangUp(ctx context.Context, x *exec) {
	for {
		left, over, looks := x.forsaken()
		if over {
			return
		}
		here, comesOrGoes := s.host.get()
		due := time.NewTimer(s.graceLeft(left, here))
		if left.IsZero() || here.IsZero() {
			due.Stop()
		}
		over = false
		select {
		case <-ctx.Done():
			over = true
		case <-looks:
		case <-comesOrGoes:
		case <-due.C:
			over = s.hangUp(ctx, x)
		}
		due.Stop()
		if over {
			return
		}
	}
}

// graceLeft is what is left of the grace: it begins when the last look ended,
// and anew when a host comes.
func (s *Server) graceLeft(left, here time.Time) time.Duration {
	if here.After(left) {
		left = here
	}
	return time.Until(left.Add(s.cfg.HangUpGrace))
}

// hangUp ends a program as the loss of its terminal would, and when that does
// not move it, by force. It reports whether there is no more to do: false when
// somebody attached in time.
//
// While processes are frozen it waits: a fork, in which the exec is the
// source's, gets its identity first, and what the exec runs goes on there.
func (s *Server) hangUp(ctx context.Context, x *exec) (done bool) {
	group, again := s.sendHangUp(ctx, x)
	if again {
		return false
	}
	timer := time.NewTimer(killGrace)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return true
	case <-timer.C:
	}
	return s.killGroup(ctx, x, group)
}

// sendHangUp returns the members of the program's group, or that it is not to
// be hung up any more.
func (s *Server) sendHangUp(ctx context.Context, x *exec) (group map[int]bool, again bool) {
	if s.gate.enter(ctx) != nil {
		return nil, true
	}
	defer s.gate.leave()
	x.mu.Lock()
	again = x.attached != nil || x.discard || x.finished
	if !again {
		x.impatient = true // what it still writes is not waited for
		x.changed()
	}
	x.mu.Unlock()
	if again {
		return nil, true
	}
	if x.child.exited() != nil {
		return nil, false // it ended by itself, and only its output waited
	}
	group = s.members(x.child.pid)
	s.signalHangUp(x)
	return group, false
}

// signalHangUp tells a program's group, and who has its terminal; they may
// have ended.
func (s *Server) signalHangUp(x *exec) {
	if x.tty != nil {
		group := foreground(x.tty)
		if group == 0 {
			_ = s.signalSession(x.child, syscall.SIGHUP)
			return
		}
		_ = s.children.signal(x.child, group, syscall.SIGHUP)
	}
	_ = s.children.signal(x.child, 0, syscall.SIGHUP)
}

// killGroup kills what is left of a program's group. Its number still means
// the same group when its leader lives, or one who was in it before.
func (s *Server) killGroup(ctx context.Context, x *exec, before map[int]bool) (done bool) {
	if s.gate.enter(ctx) != nil {
		return true
	}
	defer s.gate.leave()
	x.mu.Lock()
	wanted := x.attached != nil
	discard := x.discard
	x.mu.Unlock()
	if discard {
		return true
	}
	if wanted {
		return false
	}
	err := s.children.signal(x.child, 0, syscall.SIGKILL)
	if err == nil || errors.Is(err, syscall.ESRCH) {
		return true
	}
	for pid := range s.members(x.child.pid) {
		if before[pid] {
			_ = s.cfg.OS.Signal(-x.child.pid, syscall.SIGKILL) // it may be gone
			break
		}
	}
	return true
}

// members lists the processes of a group.
func (s *Server) members(group int) map[int]bool {
	all, err := s.cfg.OS.Processes()
	if err != nil {
		return nil
	}
	found := map[int]bool{}
	for _, p := range all {
		if p.Group == group && p.State != 'Z' && p.State != 'X' {
			found[p.PID] = true
		}
	}
	return found
}
