//go:build linux

package pid1

import (
	"context"
	"io"
	"syscall"
	"time"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/proto"
)

const (
	// killLimit bounds the wait for killed processes; what hangs in the
	// kernel ends with the sandbox.
	killLimit = 5 * time.Second
	// partingLimit bounds the wait for the host to have read the reply.
	partingLimit = time.Second
)

// serveStop ends the sandbox. Once begun it goes through, whoever asked.
func (s *Server) serveStop(ctx context.Context, c *call) {
	a, err := args[proto.StopArgs](c)
	if err == nil && a.GraceMillis < 0 {
		err = errs.New(errs.InvalidArgument, "a grace of %d ms is not possible", a.GraceMillis)
	}
	if err == nil {
		_, err = s.lockFreezing(ctx) // for good: nothing freezes any more
	}
	if err != nil {
		_ = reply(c.st, nil, err) // when that fails the host is gone
		return
	}
	s.wakeAll()
	exit := s.endAll(s.group.Context(), time.Duration(a.GraceMillis)*time.Millisecond)
	_ = reply(c.st, proto.StopResult{MainExit: exit}, nil)
	_ = c.st.Close()
	s.parting(ctx, c.st)
	close(s.stopped)
}

// parting waits until the host closes its side, which says that it has read.
func (s *Server) parting(ctx context.Context, st io.Reader) {
	ctx, cancel := context.WithTimeout(ctx, partingLimit)
	defer cancel()
	read := make(chan struct{})
	s.group.Go("parting", func(context.Context) error {
		defer close(read)
		_, _ = io.Copy(io.Discard, st) // any end will do
		return nil
	})
	select {
	case <-read:
	case <-ctx.Done():
	}
}

// endAll asks the main command to end, and then kills everything.
func (s *Server) endAll(ctx context.Context, grace time.Duration) *proto.ExitStatus {
	s.mu.Lock()
	m := s.main
	s.mu.Unlock()
	if m != nil && grace > 0 && s.children.signal(m.child, 0, syscall.SIGTERM) == nil {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-m.child.done:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	s.killAll(ctx)
	if m == nil {
		return nil
	}
	select {
	case <-m.child.done:
		for _, p := range m.pumps {
			p.now()
		}
		return m.child.exited()
	default:
		return nil
	}
}

// end kills every user process; the sandbox itself stays.
func (s *Server) end(ctx context.Context) error {
	release, err := s.lockFreezing(ctx)
	if err != nil {
		return err
	}
	defer release()
	s.wakeAll()
	s.killAll(ctx)
	return nil
}

// killAll kills every user process, also those that appear meanwhile, until
// none is left.
func (s *Server) killAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	wait := lookAgain
	for {
		all, err := s.cfg.OS.Processes()
		alive := 0
		for _, p := range all {
			if p.State != 'Z' && p.State != 'X' {
				alive++
				_ = s.cfg.OS.Signal(p.PID, syscall.SIGKILL) // it may be gone
			}
		}
		if err != nil || alive == 0 {
			break
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		wait = min(2*wait, lookAgainMax)
	}
	s.children.reap()
}
