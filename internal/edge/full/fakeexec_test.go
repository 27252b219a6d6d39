package full_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"

	"connectrpc.com/connect"
	"github.com/creack/pty"

	broodv1 "brood/api/brood/v1"
	"brood/api/brood/v1/broodv1connect"
	"brood/internal/base/errs"
	"brood/internal/base/life"
)

// fakeExec is a command: a real process of this machine.
type fakeExec struct {
	id      string
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	tty     *os.File
	written uint64
	events  []*broodv1.ExecEvent
	changed chan struct{}
	mu      sync.Mutex // guards written, events, changed
}

type fakeExecs struct {
	broodv1connect.UnimplementedExecServiceHandler
	f *fake
}

// Exec runs a command in the sandbox's folder, with the sandbox's name in
// SANDBOX.
func (s *fakeExecs) Exec(ctx context.Context, req *connect.Request[broodv1.ExecRequest], stream *connect.ServerStream[broodv1.ExecEvent]) error {
	b, err := s.f.box(req.Msg.GetSandbox())
	if err != nil {
		return err
	}
	e, exit := s.f.startExec(b, req.Msg)
	if exit != nil {
		return stream.Send(&broodv1.ExecEvent{Event: &broodv1.ExecEvent_Exit{Exit: exit}})
	}
	s.f.log("exec %s in %s", e.id, b.name)
	if req.Msg.GetDetach() {
		return stream.Send(e.events[0])
	}
	return e.play(ctx, 0, stream.Send)
}

// kill ends the commands of a sandbox; the lock is held.
func (b *box) kill() {
	for _, e := range b.execs {
		_ = syscall.Kill(-e.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	}
}

func (f *fake) startExec(b *box, req *broodv1.ExecRequest) (*fakeExec, *broodv1.ExecExit) {
	cmd := exec.Command(req.GetArgv()[0], req.GetArgv()[1:]...)
	cmd.Dir = b.dir
	cmd.Env = []string{"SANDBOX=" + b.name, "PATH=" + os.Getenv("PATH")}
	for _, k := range slices.Sorted(maps.Keys(req.GetEnv())) {
		cmd.Env = append(cmd.Env, k+"="+req.GetEnv()[k])
	}
	f.mu.Lock()
	e := &fakeExec{id: f.id("x-"), cmd: cmd, changed: make(chan struct{})}
	f.mu.Unlock()
	outputs, err := e.start(req)
	if err != nil {
		code := int32(126)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			code = 127
		}
		return nil, &broodv1.ExecExit{Code: code, Error: req.GetArgv()[0] + ": " + err.Error()}
	}
	f.mu.Lock()
	b.execs[e.id] = e
	if f.sandboxes[b.name] != b { // removed meanwhile
		b.kill()
	}
	f.mu.Unlock()
	e.emit(&broodv1.ExecEvent{Event: &broodv1.ExecEvent_Started{Started: &broodv1.ExecStarted{ExecId: e.id, Pid: 7}}})
	f.group.Go(e.id, func(context.Context) error { return e.wait(outputs) })
	return e, nil
}

func (e *fakeExec) start(req *broodv1.ExecRequest) ([]io.Reader, error) {
	if req.GetTty() {
		tty, err := pty.StartWithSize(e.cmd, &pty.Winsize{Cols: uint16(req.GetCols()), Rows: uint16(req.GetRows())})
		e.tty, e.stdin = tty, tty
		return []io.Reader{tty}, err
	}
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if req.GetStdin() {
		if e.stdin, err = e.cmd.StdinPipe(); err != nil {
			return nil, err
		}
	}
	stdout, err := e.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := e.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	return []io.Reader{stdout, stderr}, e.cmd.Start()
}

func (e *fakeExec) wait(outputs []io.Reader) error {
	g := life.NewGroup(context.Background())
	for i, r := range outputs {
		g.Go("output", func(context.Context) error {
			e.copy(r, i == 1)
			return nil
		})
	}
	_ = g.Wait()
	exit := &broodv1.ExecExit{}
	var failed *exec.ExitError
	if err := e.cmd.Wait(); errors.As(err, &failed) {
		if ws := failed.Sys().(syscall.WaitStatus); ws.Signaled() {
			exit.Signal, exit.Code = int32(ws.Signal()), 128+int32(ws.Signal())
		} else {
			exit.Code = int32(ws.ExitStatus())
		}
	}
	if e.tty != nil {
		e.tty.Close()
	}
	e.emit(&broodv1.ExecEvent{Event: &broodv1.ExecEvent_Exit{Exit: exit}})
	return nil
}

func (e *fakeExec) copy(r io.Reader, stderr bool) {
	var offset uint64
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			o := &broodv1.ExecOutput{Offset: offset, Data: slices.Clone(buf[:n])}
			ev := &broodv1.ExecEvent{Event: &broodv1.ExecEvent_Stdout{Stdout: o}}
			if stderr {
				ev = &broodv1.ExecEvent{Event: &broodv1.ExecEvent_Stderr{Stderr: o}}
			}
			offset += uint64(n)
			e.emit(ev)
		}
		if err != nil {
			return
		}
	}
}

func (e *fakeExec) emit(ev *broodv1.ExecEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, ev)
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *fakeExec) play(ctx context.Context, from int, send func(*broodv1.ExecEvent) error) error {
	for {
		e.mu.Lock()
		events, changed := e.events[from:], e.changed
		e.mu.Unlock()
		for _, ev := range events {
			from++
			if err := send(ev); err != nil {
				return err
			}
			if ev.GetExit() != nil {
				return nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *fakeExecs) find(sandbox, id string) (*fakeExec, error) {
	b, err := s.f.box(sandbox)
	if err != nil {
		return nil, err
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	e, ok := b.execs[id]
	if !ok {
		return nil, errs.New(errs.NotFound, "no exec %s", id)
	}
	return e, nil
}

func (s *fakeExecs) WriteStdin(_ context.Context, req *connect.Request[broodv1.WriteStdinRequest]) (*connect.Response[broodv1.WriteStdinResponse], error) {
	e, err := s.find(req.Msg.GetSandbox(), req.Msg.GetExecId())
	if err != nil {
		return nil, err
	}
	if _, err := e.stdin.Write(req.Msg.GetData()); err != nil {
		return nil, errs.New(errs.FailedPrecondition, "%w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.written += uint64(len(req.Msg.GetData()))
	return connect.NewResponse(&broodv1.WriteStdinResponse{NextOffset: e.written}), nil
}

func (s *fakeExecs) CloseStdin(_ context.Context, req *connect.Request[broodv1.CloseStdinRequest]) (*connect.Response[broodv1.CloseStdinResponse], error) {
	e, err := s.find(req.Msg.GetSandbox(), req.Msg.GetExecId())
	if err != nil {
		return nil, err
	}
	if e.tty != nil {
		_, err = e.tty.Write([]byte{4}) // Ctrl-D
	} else {
		err = e.stdin.Close()
	}
	return connect.NewResponse(&broodv1.CloseStdinResponse{}), err
}

func (s *fakeExecs) ResizeExec(_ context.Context, req *connect.Request[broodv1.ResizeExecRequest]) (*connect.Response[broodv1.ResizeExecResponse], error) {
	e, err := s.find(req.Msg.GetSandbox(), req.Msg.GetExecId())
	if err != nil {
		return nil, err
	}
	err = pty.Setsize(e.tty, &pty.Winsize{Cols: uint16(req.Msg.GetCols()), Rows: uint16(req.Msg.GetRows())})
	return connect.NewResponse(&broodv1.ResizeExecResponse{}), err
}

func (s *fakeExecs) SignalExec(_ context.Context, req *connect.Request[broodv1.SignalExecRequest]) (*connect.Response[broodv1.SignalExecResponse], error) {
	e, err := s.find(req.Msg.GetSandbox(), req.Msg.GetExecId())
	if err != nil {
		return nil, err
	}
	s.f.log("signal %d to %s", req.Msg.GetSignal(), e.id)
	if err := syscall.Kill(-e.cmd.Process.Pid, syscall.Signal(req.Msg.GetSignal())); err != nil {
		return nil, errs.New(errs.FailedPrecondition, "%w", err)
	}
	return connect.NewResponse(&broodv1.SignalExecResponse{}), nil
}

// ListExecs lists the commands, as they were started.
func (s *fakeExecs) ListExecs(_ context.Context, req *connect.Request[broodv1.ListExecsRequest]) (*connect.Response[broodv1.ListExecsResponse], error) {
	b, err := s.f.box(req.Msg.GetSandbox())
	if err != nil {
		return nil, err
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	resp := &broodv1.ListExecsResponse{}
	for _, id := range slices.Sorted(maps.Keys(b.execs)) {
		e := b.execs[id]
		e.mu.Lock()
		last := e.events[len(e.events)-1]
		resp.Execs = append(resp.Execs, &broodv1.ExecInfo{ExecId: id, Argv: e.cmd.Args, Pid: 7, Exit: last.GetExit()})
		e.mu.Unlock()
	}
	return connect.NewResponse(resp), nil
}
