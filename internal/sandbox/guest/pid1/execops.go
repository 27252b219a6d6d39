//go:build linux

package pid1

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/proto"
)

// exec finds an exec by its id.
func (s *Server) exec(id string) (*exec, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.execs[id]; x != nil {
		return x, nil
	}
	return nil, errs.New(errs.NotFound, "exec %.80q does not exist: it was never started, was forgotten, or belonged to the sandbox this one was forked from", id)
}

// serveExec starts a program; the stream goes on as an attachment if asked.
func (s *Server) serveExec(ctx context.Context, c *call) {
	a, err := args[proto.ExecArgs](c)
	if err != nil {
		_ = reply(c.st, nil, err) // when that fails the host is gone
		return
	}
	x, err := s.startExec(ctx, a)
	switch {
	case err != nil:
		_ = reply(c.st, nil, err)
	case a.Attach:
		s.attachTo(ctx, c, x, [2]uint64{})
	default:
		_ = reply(c.st, x.info(), nil)
	}
}

func (s *Server) serveAttach(ctx context.Context, c *call) {
	a, err := args[proto.AttachArgs](c)
	var x *exec
	if err == nil {
		x, err = s.exec(a.ID)
	}
	if err != nil {
		_ = reply(c.st, nil, err)
		return
	}
	s.attachTo(ctx, c, x, [2]uint64{a.Stdout, a.Stderr})
}

func (s *Server) attachTo(ctx context.Context, c *call, x *exec, from [2]uint64) {
	a, result, err := x.attach(from)
	if e := reply(c.st, result, err); e != nil && err == nil {
		x.detach(a)
		return
	}
	if err == nil {
		s.serveAttachment(ctx, c.st, x, a)
	}
}

// serveStdin reads the announced bytes and gives them to the program.
func (s *Server) serveStdin(ctx context.Context, c *call) {
	a, err := args[proto.StdinArgs](c)
	if err == nil && (a.Size < 0 || a.Size > proto.MaxStdin) {
		err = errs.New(errs.InvalidArgument, "input of %d bytes: send at most %d at once", a.Size, proto.MaxStdin)
	}
	if err != nil {
		_ = reply(c.st, nil, err)
		return
	}
	data := make([]byte, a.Size)
	if _, err := io.ReadFull(c.st, data); err != nil {
		return // torn: the host is gone, and half a write is none
	}
	watched(ctx, c.st, func(ctx context.Context) {
		x, err := s.exec(a.ID)
		var n uint64
		if err == nil {
			n, err = x.writeStdin(ctx, s.gate, a.Offset, data)
		}
		_ = reply(c.st, proto.StdinResult{Offset: n}, err)
	})
}

func (s *Server) resize(ctx context.Context, a proto.ResizeArgs) error {
	x, err := s.exec(a.ID)
	if err != nil {
		return err
	}
	if x.tty == nil {
		return errs.New(errs.FailedPrecondition, "exec %s has no terminal", a.ID)
	}
	if a.Cols == 0 || a.Rows == 0 {
		return errs.New(errs.InvalidArgument, "a terminal has at least one column and one row")
	}
	if err := s.gate.enter(ctx); err != nil {
		return err
	}
	defer s.gate.leave()
	if err := resize(x.tty, a.Cols, a.Rows); err != nil {
		return errs.New(errs.FailedPrecondition, "resize the terminal of exec %s: %w", a.ID, err)
	}
	if foreground(x.tty) == 0 {
		// Such a kernel does not tell the programs either. Whoever does not
		// care ignores it.
		return s.signalSession(x.child, syscall.SIGWINCH)
	}
	return nil
}

// signalSession sends a signal to every group of a program's session.
func (s *Server) signalSession(ch *child, sig syscall.Signal) error {
	all, err := s.cfg.OS.Processes()
	if err != nil {
		return err
	}
	groups := map[int]bool{ch.pid: true}
	for _, p := range all {
		if p.Session == ch.pid && p.Group > 0 {
			groups[p.Group] = true
		}
	}
	var failed error
	for group := range groups {
		// A group may have ended since it was listed.
		if err := s.children.signal(ch, group, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			failed = err
		}
	}
	return failed
}

func (s *Server) signal(ctx context.Context, a proto.SignalArgs) error {
	sig, err := parseSignal(a.Signal)
	if err != nil {
		return err
	}
	ch, tty, err := s.target(a.ID)
	if err != nil {
		return err
	}
	if err := s.gate.enter(ctx); err != nil {
		return err
	}
	defer s.gate.leave()
	if tty == nil {
		return s.children.signal(ch, 0, sig)
	}
	if group := foreground(tty); group != 0 {
		return s.children.signal(ch, group, sig)
	}
	return s.signalSession(ch, sig)
}

// target returns the child that an id means, and its terminal if it has one.
func (s *Server) target(id string) (*child, *os.File, error) {
	if id == proto.MainID {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.main == nil {
			return nil, nil, errs.New(errs.FailedPrecondition, "the main command was not started")
		}
		return s.main.child, nil, nil
	}
	x, err := s.exec(id)
	if err != nil {
		return nil, nil, err
	}
	return x.child, x.tty, nil
}

func (s *Server) execList() proto.ExecListResult {
	s.mu.Lock()
	all := make([]*exec, 0, len(s.order))
	for _, id := range s.order {
		all = append(all, s.execs[id])
	}
	s.mu.Unlock()
	result := proto.ExecListResult{Execs: []proto.ExecInfo{}}
	for _, x := range all {
		result.Execs = append(result.Execs, x.info())
	}
	return result
}

// execWait waits until a program has ended and all it wrote is in its
// buffers; with a full buffer that needs somebody who reads it.
func (s *Server) execWait(ctx context.Context, id string) (proto.ExitStatus, error) {
	x, err := s.exec(id)
	if err != nil {
		return proto.ExitStatus{}, err
	}
	for {
		x.mu.Lock()
		finished, change := x.finished, x.change
		x.mu.Unlock()
		if finished {
			return x.child.status, nil
		}
		select {
		case <-ctx.Done():
			return proto.ExitStatus{}, ctx.Err()
		case <-change:
		}
	}
}

func (s *Server) execForget(id string) error {
	x, err := s.exec(id)
	if err != nil {
		return err
	}
	if x.info().Exit == nil {
		return errs.New(errs.FailedPrecondition, "exec %s is running: signal it and wait for its end first", id)
	}
	s.forget(id)
	return nil
}
