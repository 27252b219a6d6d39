package client

import (
	"context"
	"io"
	"maps"

	"connectrpc.com/connect"

	broodv1 "brood/api/brood/v1"
	"brood/internal/base/errs"
)

// ExecOptions say what to run.
type ExecOptions struct {
	// Argv is the command, looked up in PATH when it has no slash.
	Argv []string
	// Env is added to the sandbox's environment.
	Env map[string]string
	// Workdir is empty for the sandbox's own.
	Workdir string
	// User is a name or uid, with ":" group or gid; empty: the sandbox's own.
	User string
	// TTY gives it a terminal of Cols by Rows (0: 80 by 24); all output is
	// then standard output.
	TTY        bool
	Cols, Rows uint32
	// Stdin says that input will be written. Exec sets it by itself.
	Stdin bool
	// Detach lets it run for itself. Otherwise it is ended when nobody has
	// watched it for ten seconds.
	Detach bool
}

// ExecExit is how a command ended.
type ExecExit = broodv1.ExecExit

// Streams are a command's ends on this side; each may be nil.
type Streams struct {
	// In is read until its end, or the command's. A Read that is under way
	// when the command ends is not waited for, unless In is a file or
	// connection that can be interrupted.
	In       io.Reader
	Out, Err io.Writer
}

// Exec runs a command in a sandbox and returns how it ended. That a command
// fails, or cannot be started, is no error here: see ExecExit. When ctx ends
// the command is left alone, and hung up unless somebody else attaches.
func (c *Client) Exec(ctx context.Context, sandbox string, o ExecOptions, s Streams) (*ExecExit, error) {
	o.Stdin = o.Stdin || s.In != nil
	e, err := c.StartExec(ctx, sandbox, o)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	return e.Wait(ctx, s)
}

// Execution is a command in a sandbox that is being watched. Wait and Close are for
// one goroutine; the other methods may be called at any time.
type Execution struct {
	client  *Client
	sandbox string
	id      string
	pid     uint32
	feed    *execFeed // nil: to be attached
	offsets [2]uint64 // of the next byte of stdout, stderr
	exit    *ExecExit

	attached bool   // somebody else may have written input
	written  uint64 // offset of the next byte of input; the pump's
}

// ID names the command within its sandbox; empty when it did not start.
func (e *Execution) ID() string { return e.id }

// PID is the command's pid inside.
func (e *Execution) PID() uint32 { return e.pid }

// Close stops watching. A command that was not detached is hung up ten seconds
// later unless somebody attaches.
func (e *Execution) Close() {
	if e.feed != nil {
		e.feed.close()
		e.feed = nil
	}
}

// StartExec starts a command and returns when it runs, or has failed to start:
// Wait says which.
func (c *Client) StartExec(ctx context.Context, sandbox string, o ExecOptions) (*Execution, error) {
	req := &broodv1.ExecRequest{
		Sandbox: sandbox, Argv: o.Argv, Env: maps.Clone(o.Env), Workdir: o.Workdir, User: o.User,
		Tty: o.TTY, Cols: o.Cols, Rows: o.Rows, Stdin: o.Stdin, Detach: o.Detach,
	}
	s, cancel, err := open(ctx, func(life context.Context) (*execStream, error) {
		return c.execs.Exec(life, connect.NewRequest(req))
	})
	if err != nil {
		return nil, ended(ctx, err)
	}
	e := &Execution{client: c, sandbox: sandbox, feed: &execFeed{s, cancel}}
	ev, err := e.feed.next(ctx)
	if err != nil {
		e.Close()
		return nil, ended(ctx, err)
	}
	switch v := ev.GetEvent().(type) {
	case *broodv1.ExecEvent_Started:
		e.id, e.pid = v.Started.GetExecId(), v.Started.GetPid()
		if o.Detach {
			e.Close() // this stream brings no more; Wait attaches
		}
	case *broodv1.ExecEvent_Exit:
		e.exit = v.Exit
		e.Close()
	default:
		e.Close()
		return nil, failed(errs.New(errs.Internal, "exec in %s: the daemon sent %T before it said that the command started", sandbox, v))
	}
	return e, nil
}

// AttachExec watches a command that was started before, its output from the
// given offsets.
func (c *Client) AttachExec(sandbox, execID string, stdoutOffset, stderrOffset uint64) *Execution {
	return &Execution{client: c, sandbox: sandbox, id: execID, attached: true, offsets: [2]uint64{stdoutOffset, stderrOffset}}
}

// SignalExec sends a signal, by its number on Linux, to a command's process
// group.
func (c *Client) SignalExec(ctx context.Context, sandbox, execID string, signal int) error {
	_, err := unary(ctx, c.execs.SignalExec, &broodv1.SignalExecRequest{Sandbox: sandbox, ExecId: execID, Signal: int32(signal)})
	return err
}

// ListExecs lists the commands of a sandbox, oldest first.
func (c *Client) ListExecs(ctx context.Context, sandbox string) ([]*broodv1.ExecInfo, error) {
	r, err := unary(ctx, c.execs.ListExecs, &broodv1.ListExecsRequest{Sandbox: sandbox})
	return r.GetExecs(), err
}

// Resize sets the size of the terminal.
func (e *Execution) Resize(ctx context.Context, cols, rows uint32) error {
	_, err := unary(ctx, e.client.execs.ResizeExec, &broodv1.ResizeExecRequest{Sandbox: e.sandbox, ExecId: e.id, Cols: cols, Rows: rows})
	return err
}

// Signal sends a signal, by its number on Linux, to the command's process
// group.
func (e *Execution) Signal(ctx context.Context, signal int) error {
	return e.client.SignalExec(ctx, e.sandbox, e.id, signal)
}

// Wait brings the streams together and returns how the command ended. When ctx
// ends, Wait may be called again and goes on where it was; output is then
// neither lost nor repeated, input that was read and not yet taken is lost.
func (e *Execution) Wait(ctx context.Context, s Streams) (*ExecExit, error) {
	if e.exit != nil {
		return e.exit, nil
	}
	in := e.pump(ctx, s.In)
	exit, err := e.output(ctx, [2]io.Writer{s.Out, s.Err})
	if inErr := in.stop(); err == nil && inErr != nil {
		return exit, failed(inErr)
	}
	return exit, err
}

func (e *Execution) output(ctx context.Context, out [2]io.Writer) (*ExecExit, error) {
	wait := e.client.patiently()
	for e.exit == nil {
		progress, err := e.step(ctx, out)
		if err == nil {
			wait = e.client.patiently()
			continue
		}
		if progress {
			return nil, failed(err) // a writer of ours
		}
		e.Close()
		if ctx.Err() != nil || !lost(err) {
			return nil, ended(ctx, err)
		}
		if err := wait.pause(ctx, err); err != nil {
			return nil, failed(err)
		}
	}
	return e.exit, nil
}

// step handles one event. With an error, received says that the event did
// come.
func (e *Execution) step(ctx context.Context, out [2]io.Writer) (received bool, err error) {
	if e.feed == nil {
		s, cancel, err := open(ctx, func(life context.Context) (*execStream, error) {
			return e.client.execs.AttachExec(life, connect.NewRequest(&broodv1.AttachExecRequest{
				Sandbox: e.sandbox, ExecId: e.id, StdoutOffset: e.offsets[0], StderrOffset: e.offsets[1],
			}))
		})
		if err != nil {
			return false, err
		}
		e.feed = &execFeed{s, cancel}
	}
	ev, err := e.feed.next(ctx)
	if err != nil {
		return false, err
	}
	switch v := ev.GetEvent().(type) {
	case *broodv1.ExecEvent_Stdout:
		return true, e.write(out, 0, v.Stdout)
	case *broodv1.ExecEvent_Stderr:
		return true, e.write(out, 1, v.Stderr)
	case *broodv1.ExecEvent_Exit:
		e.exit = v.Exit
		e.Close()
	}
	return true, nil
}

// write passes on what is new of a piece.
func (e *Execution) write(out [2]io.Writer, i int, o *broodv1.ExecOutput) error {
	data := o.GetData()
	if known := e.offsets[i]; o.GetOffset() < known {
		data = data[min(known-o.GetOffset(), uint64(len(data))):]
	}
	e.offsets[i] = max(e.offsets[i], o.GetOffset()+uint64(len(o.GetData())))
	if out[i] == nil || len(data) == 0 {
		return nil
	}
	_, err := out[i].Write(data)
	return err
}

type execStream = connect.ServerStreamForClient[broodv1.ExecEvent]

// execFeed is one connection that brings events of a command.
type execFeed struct {
	stream *execStream
	cancel context.CancelFunc
}

func (f *execFeed) next(ctx context.Context) (*broodv1.ExecEvent, error) {
	stop := context.AfterFunc(ctx, f.cancel)
	defer stop()
	if !f.stream.Receive() {
		return nil, streamEnd(f.stream.Err())
	}
	return f.stream.Msg(), nil
}

func (f *execFeed) close() {
	f.cancel()
	_ = f.stream.Close() // it was cancelled: that is all it can say
}
