//go:build linux

package pid1

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/proto"
)

const (
	// freezeLimit bounds a freeze; what does not stop by then hangs in the
	// kernel, and everything goes on.
	freezeLimit = 10 * time.Second
	// defaultThaw is when a sandbox goes on by itself whose host froze it,
	// not for a capture, and was not heard of again.
	defaultThaw = 30 * time.Second
	// lookAgain and lookAgainMax are the waits between looks at processes
	// that are about to stop.
	lookAgain    = 50 * time.Microsecond
	lookAgainMax = 2 * time.Millisecond
)

// frozen is what a thaw must know.
type frozen struct {
	on      bool
	stopped map[int]bool // stopped by us
	order   []int        // the same, parents before their children
	already map[int]bool // stopped before by somebody else: not ours to wake
	cancel  context.CancelFunc
}

// freeze stops every user process. When it returns without an error nothing
// of the user runs, the log holds what the main command wrote, and the server
// sends nothing but answers.
//
// With Capture nothing thaws but the host's word. A timer would be wrong: the
// clock jumps in a fork, which must stay frozen until its identity is
// confirmed, and the source is thawed by its daemon or the next one.
func (s *Server) freeze(ctx context.Context, a proto.FreezeArgs) (proto.FreezeResult, error) {
	release, err := s.lockFreezing(ctx)
	if err != nil {
		return proto.FreezeResult{}, err
	}
	defer release()
	if !s.frozen.on {
		if err := s.stopAll(ctx); err != nil {
			return proto.FreezeResult{}, err
		}
	}
	if s.frozen.cancel != nil {
		s.frozen.cancel()
		s.frozen.cancel = nil
	}
	if !a.Capture {
		s.thawLater(time.Duration(a.ThawAfterMillis) * time.Millisecond)
	}
	return proto.FreezeResult{Stopped: len(s.frozen.stopped), Already: len(s.frozen.already)}, nil
}

// thawLater thaws after a time unless a freeze or thaw comes first.
func (s *Server) thawLater(after time.Duration) {
	if after <= 0 {
		after = defaultThaw
	}
	ctx, cancel := context.WithCancel(s.group.Context())
	s.frozen.cancel = cancel
	s.group.Go("thaw", func(context.Context) error {
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		release, err := s.lockFreezing(ctx)
		if err != nil || ctx.Err() != nil {
			if err == nil {
				release()
			}
			return nil
		}
		defer release()
		s.wakeAll()
		return nil
	})
}

// thaw lets user processes go on. It may be called when nothing is frozen.
func (s *Server) thaw(ctx context.Context) error {
	release, err := s.lockFreezing(ctx)
	if err != nil {
		return err
	}
	defer release()
	s.wakeAll()
	return nil
}

// stopAll stops parents before their children, so that no shell sees its job
// stopped and takes the terminal away from it.
func (s *Server) stopAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, freezeLimit)
	defer cancel()
	if err := s.gate.close(ctx); err != nil {
		return errs.New(errs.Unavailable, "freeze: the sandbox is busy starting programs or copying: %w", err)
	}
	s.frozen = frozen{on: true, stopped: map[int]bool{}, already: map[int]bool{}}
	for {
		fresh, err := s.stopRound(ctx)
		if err != nil {
			s.wakeAll()
			return errs.New(errs.Unavailable, "freeze: %w", err)
		}
		if fresh == 0 {
			break
		}
	}
	s.mu.Lock()
	m := s.main
	s.mu.Unlock()
	if m != nil {
		for _, p := range m.pumps {
			p.now()
		}
	}
	return nil
}

// stopRound stops every process that runs and returns how many it found, new
// ones that were stopped already included. A process may have got children
// until it stopped: they are found in the next round, and when a round finds
// nothing, all is still.
func (s *Server) stopRound(ctx context.Context) (int, error) {
	all, err := s.cfg.OS.Processes()
	if err != nil {
		return 0, err
	}
	fresh := 0
	for _, level := range levels(all) {
		var waitFor []int
		for _, p := range level {
			known := s.frozen.stopped[p.PID] || s.frozen.already[p.PID]
			if p.State == 'Z' || p.State == 'X' || (known && p.still()) {
				continue
			}
			fresh++
			if !known && p.State == 'T' && p.still() {
				s.frozen.already[p.PID] = true
				continue
			}
			// One that is known and runs was continued by a process that
			// had not stopped yet.
			delete(s.frozen.already, p.PID)
			err := s.cfg.OS.Signal(p.PID, syscall.SIGSTOP)
			if errors.Is(err, syscall.ESRCH) {
				continue
			}
			if err != nil {
				return 0, err
			}
			if !s.frozen.stopped[p.PID] {
				s.frozen.stopped[p.PID] = true
				s.frozen.order = append(s.frozen.order, p.PID)
			}
			waitFor = append(waitFor, p.PID)
		}
		if err := untilStill(ctx, waitFor); err != nil {
			return 0, err
		}
	}
	return fresh, nil
}

// levels sorts processes by their distance from the root of the tree, nearest
// first. Orphans of a test's process tree count as roots.
func levels(all []Proc) [][]Proc {
	parent := make(map[int]int, len(all))
	for _, p := range all {
		parent[p.PID] = p.PPID
	}
	var out [][]Proc
	for _, p := range all {
		depth := 0
		for at := p.PPID; depth < len(all); depth++ {
			up, known := parent[at]
			if !known {
				break
			}
			at = up
		}
		for len(out) <= depth {
			out = append(out, nil)
		}
		out[depth] = append(out[depth], p)
	}
	return out
}

// untilStill waits until none of the processes runs.
func untilStill(ctx context.Context, pids []int) error {
	wait := lookAgain
	for {
		pids = slices.DeleteFunc(pids, still)
		if len(pids) == 0 {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errs.New(errs.Unavailable, "process %d does not stop: %w", pids[0], ctx.Err())
		case <-timer.C:
		}
		wait = min(2*wait, lookAgainMax)
	}
}

// wakeAll continues what was stopped, children before their parents, and
// opens the gate. s.freezing is held.
func (s *Server) wakeAll() {
	if !s.frozen.on {
		return
	}
	if s.frozen.cancel != nil {
		s.frozen.cancel()
	}
	if s.log != nil {
		// After a restore these may be other files. An error leaves the
		// log as it was; writing finds out.
		_ = s.log.Detect()
	}
	for _, pid := range slices.Backward(s.frozen.order) {
		// It cannot have been replaced by another of its number: nothing is
		// started while frozen but hooks, which a SIGCONT does not disturb.
		_ = s.cfg.OS.Signal(pid, syscall.SIGCONT) // it may be gone
	}
	s.frozen = frozen{}
	s.gate.open()
}
