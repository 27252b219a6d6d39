//go:build linux

package pid1

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/logs"
	"brood/internal/sandbox/guest/proto"
)

// start starts the main command, or starts it again after it has ended.
func (s *Server) start(ctx context.Context, a proto.StartArgs) (proto.StartResult, error) {
	if err := s.gate.enter(ctx); err != nil {
		return proto.StartResult{}, err
	}
	defer s.gate.leave()
	s.mu.Lock()
	taken := s.starting || s.main != nil && s.main.child.exited() == nil
	s.starting = s.starting || !taken
	s.mu.Unlock()
	if taken {
		return proto.StartResult{}, errs.New(errs.AlreadyExists, "the main command runs already; a sandbox has one")
	}
	m, err := s.startMain(a)
	s.mu.Lock()
	s.starting = false
	if err == nil {
		s.main = m
	}
	s.mu.Unlock()
	if err != nil {
		return proto.StartResult{}, err
	}
	for _, p := range m.pumps {
		s.group.Go("main output", func(ctx context.Context) error { p.run(ctx); return nil })
	}
	return proto.StartResult{PID: m.child.pid}, nil
}

func (s *Server) startMain(a proto.StartArgs) (*mainCommand, error) {
	p, err := s.prepare(a.Command, false)
	if err != nil {
		return nil, err
	}
	null, err := devNull()
	if err != nil {
		return nil, err
	}
	defer null.Close()
	if s.log == nil {
		fd := int(null.Fd())
		ch, err := s.children.start(p, [3]int{fd, fd, fd}, false)
		if err != nil {
			return nil, err
		}
		return &mainCommand{child: ch}, nil
	}
	s.log.SetLimit(a.LogLimit)
	out, fds, err := s.outputs(logSink{s.log, logs.Stdout}, logSink{s.log, logs.Stderr})
	if err != nil {
		return nil, err
	}
	ch, err := s.children.start(p, [3]int{int(null.Fd()), fds[0], fds[1]}, false)
	err = errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	if err != nil {
		closePumps(out)
		return nil, err
	}
	return &mainCommand{child: ch, pumps: out}, nil
}

// outputs makes a pipe and a pump for each sink.
func (s *Server) outputs(sinks ...sink) (pumps []*pump, fds []int, err error) {
	for _, to := range sinks {
		f, fd, err := pipe(true)
		if err == nil {
			var p *pump
			if p, err = newPump(f, s.gate, to); err == nil {
				pumps, fds = append(pumps, p), append(fds, fd)
				continue
			}
			err = errors.Join(err, f.Close(), unix.Close(fd))
		}
		closePumps(pumps)
		for _, fd := range fds {
			err = errors.Join(err, unix.Close(fd))
		}
		return nil, nil, err
	}
	return pumps, fds, nil
}

func closePumps(all []*pump) {
	for _, p := range all {
		p.close()
	}
}

// waitMain waits until the main command has ended and its log holds what it
// wrote.
func (s *Server) waitMain(ctx context.Context) (proto.ExitStatus, error) {
	s.mu.Lock()
	m := s.main
	s.mu.Unlock()
	if m == nil {
		return proto.ExitStatus{}, errs.New(errs.FailedPrecondition, "the main command was not started")
	}
	select {
	case <-ctx.Done():
		return proto.ExitStatus{}, ctx.Err()
	case <-m.child.done:
	}
	// What is read here is what the program wrote before its end; the gate
	// keeps it out of a log that a capture has finished.
	if err := s.gate.enter(ctx); err != nil {
		return proto.ExitStatus{}, err
	}
	defer s.gate.leave()
	for _, p := range m.pumps {
		p.now()
	}
	if s.log != nil {
		s.log.End()
	}
	return m.child.status, nil
}

// startExec starts a program and makes it known.
func (s *Server) startExec(ctx context.Context, a proto.ExecArgs) (*exec, error) {
	if err := s.gate.enter(ctx); err != nil {
		return nil, err
	}
	defer s.gate.leave()
	if !validID(a.ID) {
		return nil, errs.New(errs.InvalidArgument, "exec id %.80q is not valid: use 1 to 64 of a-z, A-Z, 0-9, '-' and '_'", a.ID)
	}
	now := time.Now()
	x := &exec{
		id: a.ID, argv: a.Argv, keep: !a.HangUp, impatient: !a.HangUp, began: now, left: now,
		change: make(chan struct{}), looks: make(chan struct{}), input: make(chan struct{}, 1),
	}
	if err := s.reserve(x.id); err != nil {
		return nil, err
	}
	if err := s.launch(x, a); err != nil {
		s.forget(x.id)
		return nil, err
	}
	for _, p := range x.pumps {
		s.group.Go("exec output", func(ctx context.Context) error { p.run(ctx); return nil })
	}
	s.group.Go("exec end", func(ctx context.Context) error { x.watch(ctx); return nil })
	if !x.keep {
		s.group.Go("exec hang-up", func(ctx context.Context) error { s.awaitHangUp(ctx, x); return nil })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.execs[x.id] = x
	s.order = append(s.order, x.id)
	return x, nil
}

func validID(id string) bool {
	return id != "" && id != proto.MainID && len(id) <= 64 &&
		strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

// reserve takes an id; the exec is known only once it runs.
func (s *Server) reserve(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.execs[id]; taken {
		return errs.New(errs.AlreadyExists, "exec %s exists: attach to it, or use another id", id)
	}
	if len(s.execs) >= maxExecs {
		i := slices.IndexFunc(s.order, func(id string) bool { return s.execs[id].idle() })
		if i < 0 {
			return errs.New(errs.ResourceExhausted, "%d execs are running or attached, which is the limit: end some first", len(s.execs))
		}
		delete(s.execs, s.order[i])
		s.order = slices.Delete(s.order, i, i+1)
	}
	s.execs[id] = nil
	return nil
}

func (s *Server) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.execs, id)
	s.order = slices.DeleteFunc(s.order, func(other string) bool { return other == id })
}

// launch starts the exec's program on a terminal or on pipes.
func (s *Server) launch(x *exec, a proto.ExecArgs) error {
	p, err := s.prepare(a.Command, a.TTY)
	if err != nil {
		return err
	}
	if a.TTY {
		who, err := s.account(a.User)
		if err != nil {
			return err
		}
		return s.launchTerminal(x, p, a, &who)
	}
	return s.launchPipes(x, p, a.Stdin)
}

func (s *Server) launchTerminal(x *exec, p program, a proto.ExecArgs, who *account) error {
	master, slave, err := terminal(a.Cols, a.Rows, who)
	if err != nil {
		return err
	}
	out, err := newPump(master, s.gate, execSink{x, 0})
	if err == nil {
		x.child, err = s.children.start(p, [3]int{slave, slave, slave}, true)
	}
	if err = errors.Join(err, unix.Close(slave)); err != nil {
		return errors.Join(err, master.Close())
	}
	x.tty, x.stdin, x.pumps = master, master, []*pump{out}
	return nil
}

func (s *Server) launchPipes(x *exec, p program, stdin bool) error {
	var in *os.File
	var fd int
	var err error
	if stdin {
		in, fd, err = pipe(false)
	} else {
		fd, err = noInput()
	}
	if err != nil {
		return err
	}
	out, fds, err := s.outputs(execSink{x, 0}, execSink{x, 1})
	if err != nil {
		closeQuietly(in)
		return errors.Join(err, unix.Close(fd))
	}
	ch, err := s.children.start(p, [3]int{fd, fds[0], fds[1]}, false)
	err = errors.Join(err, unix.Close(fd), unix.Close(fds[0]), unix.Close(fds[1]))
	if err != nil {
		closeQuietly(in)
		closePumps(out)
		return err
	}
	x.child, x.stdin, x.pumps = ch, in, out
	return nil
}

// parseSignal understands TERM, SIGTERM and 15.
func parseSignal(name string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(name); err == nil && n > 0 && n <= 64 {
		return syscall.Signal(n), nil
	}
	upper := strings.ToUpper(name)
	if !strings.HasPrefix(upper, "SIG") {
		upper = "SIG" + upper
	}
	if sig := unix.SignalNum(upper); sig != 0 {
		return sig, nil
	}
	return 0, errs.New(errs.InvalidArgument, "signal %.20q is not known: use a name such as TERM, or a number from 1 to 64", name)
}

// noInput opens what is at its end at once. A program may have removed the
// device for that; a pipe that nobody writes to is as good.
func noInput() (int, error) {
	fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		return fd, nil
	}
	writer, fd, err := pipe(false)
	if err != nil {
		return -1, err
	}
	return fd, writer.Close()
}
