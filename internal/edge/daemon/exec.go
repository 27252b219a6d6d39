package daemon

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	broodv1 "brood/api/brood/v1"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox/guest"
	"brood/internal/sandbox/guest/proto"
)

type execService struct{ d *Daemon }

// Exec starts a command and streams what it does. Detached it goes on by
// itself; otherwise the guest hangs it up when its caller has gone away and
// nobody attaches again.
func (s *execService) Exec(ctx context.Context, req *connect.Request[broodv1.ExecRequest], stream *connect.ServerStream[broodv1.ExecEvent]) error {
	m := req.Msg
	g, command, err := s.command(m)
	if err != nil {
		return err
	}
	x := id.NewExec()
	ctx, cancel := s.d.using(ctx, req.Msg.GetSandbox())
	defer cancel()
	args := proto.ExecArgs{
		ID: string(x), Command: command, Stdin: m.GetStdin(), TTY: m.GetTty(), Cols: uint16(m.GetCols()), Rows: uint16(m.GetRows()),
		HangUp: !m.GetDetach(),
	}
	var a *guest.Attachment
	var pid int
	if m.GetDetach() {
		var info proto.ExecInfo
		info, err = g.Leave(ctx, args)
		pid = info.PID
	} else if a, err = g.Exec(ctx, args); err == nil {
		pid = a.PID
		defer a.Close()
	}
	if code, ok := startFailure(err); ok {
		return sendExit(stream, &broodv1.ExecExit{Code: code, Error: err.Error()})
	}
	if err != nil {
		return err
	}
	err = stream.Send(&broodv1.ExecEvent{Event: &broodv1.ExecEvent_Started{Started: &broodv1.ExecStarted{ExecId: string(x), Pid: uint32(pid)}}})
	if err != nil || m.GetDetach() {
		return err
	}
	return follow(a, stream)
}

// command reads what to run: the request's words on top of the sandbox's own.
func (s *execService) command(m *broodv1.ExecRequest) (*guest.Client, proto.Command, error) {
	name, err := nameOf("sandbox", m.GetSandbox())
	if err != nil {
		return nil, proto.Command{}, err
	}
	if len(m.GetArgv()) == 0 {
		return nil, proto.Command{}, errs.New(errs.InvalidArgument, "no command to run: give one, such as `ls /`")
	}
	if m.GetCols() > 65535 || m.GetRows() > 65535 {
		return nil, proto.Command{}, errs.New(errs.InvalidArgument, "a terminal of %d by %d: at most 65535", m.GetCols(), m.GetRows())
	}
	env, err := environ(m.GetEnv())
	if err != nil {
		return nil, proto.Command{}, err
	}
	g, sb, err := s.d.host.Guest(name)
	if err != nil {
		return nil, proto.Command{}, err
	}
	c := proto.Command{Argv: m.GetArgv(), Env: append(append([]string{}, sb.Command.Env...), env...), Cwd: m.GetWorkdir(), User: m.GetUser()}
	if c.Cwd == "" {
		c.Cwd = sb.Command.Cwd
	}
	if c.User == "" {
		c.User = sb.Command.User
	}
	return g, c, nil
}

// startFailure is the code a shell would give for a command that could not be
// started.
func startFailure(err error) (code int32, ok bool) {
	n, e := strconv.Atoi(errs.MetaOf(err)[guest.ExitKey])
	return int32(n), err != nil && e == nil
}

// AttachExec streams a command's output from given offsets.
func (s *execService) AttachExec(ctx context.Context, req *connect.Request[broodv1.AttachExecRequest], stream *connect.ServerStream[broodv1.ExecEvent]) error {
	g, x, err := s.exec(req.Msg)
	if err != nil {
		return err
	}
	ctx, cancel := s.d.using(ctx, req.Msg.GetSandbox())
	defer cancel()
	a, err := g.Attach(ctx, proto.AttachArgs{ID: string(x), Stdout: req.Msg.GetStdoutOffset(), Stderr: req.Msg.GetStderrOffset()})
	if err != nil {
		return err
	}
	defer a.Close()
	return follow(a, stream)
}

// follow sends output until the command ends. What the caller does not take
// holds the command back.
func follow(a *guest.Attachment, stream *connect.ServerStream[broodv1.ExecEvent]) error {
	for {
		out, err := a.Next()
		if errors.Is(err, io.EOF) {
			exit, _ := a.Exit()
			return sendExit(stream, exitMessage(exit))
		}
		if err != nil {
			return err
		}
		piece := &broodv1.ExecOutput{Offset: out.Offset, Data: out.Data}
		ev := &broodv1.ExecEvent{Event: &broodv1.ExecEvent_Stdout{Stdout: piece}}
		if out.Stream == guest.Stderr {
			ev.Event = &broodv1.ExecEvent_Stderr{Stderr: piece}
		}
		if err := stream.Send(ev); err != nil {
			return err
		}
	}
}

func sendExit(stream *connect.ServerStream[broodv1.ExecEvent], exit *broodv1.ExecExit) error {
	return stream.Send(&broodv1.ExecEvent{Event: &broodv1.ExecEvent_Exit{Exit: exit}})
}

func exitMessage(e proto.ExitStatus) *broodv1.ExecExit {
	m := &broodv1.ExecExit{Code: int32(e.Code)}
	if e.Signal != "" {
		m.Signal = int32(unix.SignalNum(e.Signal))
	}
	return m
}

// WriteStdin gives a command input.
func (s *execService) WriteStdin(ctx context.Context, req *connect.Request[broodv1.WriteStdinRequest]) (*connect.Response[broodv1.WriteStdinResponse], error) {
	g, x, err := s.exec(req.Msg)
	if err != nil {
		return nil, err
	}
	if len(req.Msg.GetData()) > proto.MaxStdin {
		return nil, errs.New(errs.InvalidArgument, "%d bytes of input at once: at most %d", len(req.Msg.GetData()), proto.MaxStdin)
	}
	next, err := g.WriteStdin(ctx, x, int64(req.Msg.GetOffset()), req.Msg.GetData())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&broodv1.WriteStdinResponse{NextOffset: next}), nil
}

// CloseStdin ends a command's input.
func (s *execService) CloseStdin(ctx context.Context, req *connect.Request[broodv1.CloseStdinRequest]) (*connect.Response[broodv1.CloseStdinResponse], error) {
	g, x, err := s.exec(req.Msg)
	if err == nil {
		err = g.CloseStdin(ctx, x)
	}
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&broodv1.CloseStdinResponse{}), nil
}

// ResizeExec sets the size of a command's terminal.
func (s *execService) ResizeExec(ctx context.Context, req *connect.Request[broodv1.ResizeExecRequest]) (*connect.Response[broodv1.ResizeExecResponse], error) {
	g, x, err := s.exec(req.Msg)
	if c, r := req.Msg.GetCols(), req.Msg.GetRows(); err == nil && (c == 0 || r == 0 || c > 65535 || r > 65535) {
		err = errs.New(errs.InvalidArgument, "a terminal of %d by %d: 1 to 65535 of each", c, r)
	}
	if err == nil {
		err = g.Resize(ctx, x, uint16(req.Msg.GetCols()), uint16(req.Msg.GetRows()))
	}
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&broodv1.ResizeExecResponse{}), nil
}

// SignalExec sends a signal to a command.
func (s *execService) SignalExec(ctx context.Context, req *connect.Request[broodv1.SignalExecRequest]) (*connect.Response[broodv1.SignalExecResponse], error) {
	g, x, err := s.exec(req.Msg)
	if n := req.Msg.GetSignal(); err == nil && (n < 1 || n > 64) {
		err = errs.New(errs.InvalidArgument, "signal %d: signals are 1 to 64", n)
	}
	if err == nil {
		err = g.Signal(ctx, x, strconv.Itoa(int(req.Msg.GetSignal())))
	}
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&broodv1.SignalExecResponse{}), nil
}

// ListExecs lists a sandbox's commands.
func (s *execService) ListExecs(ctx context.Context, req *connect.Request[broodv1.ListExecsRequest]) (*connect.Response[broodv1.ListExecsResponse], error) {
	g, err := s.d.guest(req.Msg.GetSandbox())
	if err != nil {
		return nil, err
	}
	all, err := g.ListExecs(ctx)
	if err != nil {
		return nil, err
	}
	resp := &broodv1.ListExecsResponse{}
	for _, x := range all {
		m := &broodv1.ExecInfo{ExecId: x.ID, Argv: x.Argv, Tty: x.TTY, Pid: uint32(x.PID), Attached: x.Attached}
		if x.Began != 0 {
			m.StartedAt = timestamppb.New(time.Unix(0, x.Began))
		}
		if x.Exit != nil {
			m.Exit = exitMessage(*x.Exit)
		}
		resp.Execs = append(resp.Execs, m)
	}
	return connect.NewResponse(resp), nil
}

// exec finds the sandbox of a message about an exec.
func (s *execService) exec(m interface {
	GetSandbox() string
	GetExecId() string
}) (*guest.Client, id.Exec, error) {
	if x := m.GetExecId(); x == "" || len(x) > 64 || strings.ContainsAny(x, "\x00\n") {
		return nil, "", errs.New(errs.InvalidArgument, "exec id %.80q is none: use the one that Exec answered with", x)
	}
	g, err := s.d.guest(m.GetSandbox())
	return g, id.Exec(m.GetExecId()), err
}

// guest finds the program inside a running sandbox.
func (d *Daemon) guest(ref string) (*guest.Client, error) {
	name, err := nameOf("sandbox", ref)
	if err != nil {
		return nil, err
	}
	g, _, err := d.host.Guest(name)
	return g, err
}
