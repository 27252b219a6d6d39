package guest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox/guest/proto"
)

// ackEvery is how much output is taken before the guest is told, in bytes: a
// small part of its window, so that a program is never held up by it.
const ackEvery = 64 << 10

// Start starts the main command and returns its pid. A sandbox has one:
// AlreadyExists says that it runs. One that has ended may be started again.
func (c *Client) Start(ctx context.Context, a StartArgs) (int, error) {
	r, err := invoke[proto.StartResult](ctx, c, proto.OpStart, a)
	return r.PID, err
}

// WaitMain waits until the main command has ended and its log holds all that
// it wrote.
func (c *Client) WaitMain(ctx context.Context) (ExitStatus, error) {
	return invoke[ExitStatus](ctx, c, proto.OpWaitMain, nil)
}

// Stop ends the sandbox: the main command's group gets a TERM and, after
// grace, everything a KILL. The exit status is nil when nothing was started.
func (c *Client) Stop(ctx context.Context, grace time.Duration) (*ExitStatus, error) {
	r, err := invoke[proto.StopResult](ctx, c, proto.OpStop, proto.StopArgs{GraceMillis: grace.Milliseconds()})
	return r.MainExit, err
}

// End kills all programs of the sandbox and leaves it as it is otherwise.
func (c *Client) End(ctx context.Context) error {
	_, err := invoke[struct{}](ctx, c, proto.OpEnd, nil)
	return err
}

// Exec starts a program and attaches to it. Until somebody reads them, its
// output buffers hold it back when they are full. With HangUp it is ended when
// the attachment is closed and no other made within ten seconds.
func (c *Client) Exec(ctx context.Context, a ExecArgs) (*Attachment, error) {
	a.Attach = true
	return c.attach(ctx, proto.OpExec, a, AttachArgs{ID: a.ID})
}

// Leave starts a program that nobody watches: what it writes does not hold it
// up, and the last of it is kept. HangUp would end it soon.
func (c *Client) Leave(ctx context.Context, a ExecArgs) (ExecInfo, error) {
	a.Attach = false
	return invoke[ExecInfo](ctx, c, proto.OpExec, a)
}

// Attach looks at an exec's output from offsets on, in the place of whoever
// did before.
func (c *Client) Attach(ctx context.Context, a AttachArgs) (*Attachment, error) {
	return c.attach(ctx, proto.OpAttach, a, a)
}

// WriteStdin gives a program input. offset says where in all of its input the
// data belongs, so that a write may be repeated; -1 appends. It returns how
// much input the program has been given in all.
func (c *Client) WriteStdin(ctx context.Context, x id.Exec, offset int64, data []byte) (uint64, error) {
	var given uint64
	for first := true; first || len(data) > 0; first = false {
		part := data[:min(len(data), proto.MaxStdin)]
		data = data[len(part):]
		n, err := c.writeStdin(ctx, proto.StdinArgs{ID: string(x), Offset: offset, Size: len(part)}, part)
		if err != nil {
			return given, err
		}
		given = n
		if offset >= 0 {
			offset += int64(len(part))
		}
	}
	return given, nil
}

func (c *Client) writeStdin(ctx context.Context, a proto.StdinArgs, data []byte) (uint64, error) {
	s, err := c.open(ctx, proto.OpStdin, a)
	if err != nil {
		return 0, err
	}
	defer s.end()
	if len(data) > 0 {
		// When this fails the guest may have answered why.
		_, err = s.Write(data)
	}
	r, e := result[proto.StdinResult](s)
	if e == nil && err != nil {
		e = lost(ctx, err)
	}
	return r.Offset, e
}

// CloseStdin ends a program's input; on a terminal it types the end-of-file
// character.
func (c *Client) CloseStdin(ctx context.Context, x id.Exec) error {
	_, err := invoke[struct{}](ctx, c, proto.OpCloseStdin, proto.IDArgs{ID: string(x)})
	return err
}

// Resize sets the size of an exec's terminal.
func (c *Client) Resize(ctx context.Context, x id.Exec, cols, rows uint16) error {
	_, err := invoke[struct{}](ctx, c, proto.OpResize, proto.ResizeArgs{ID: string(x), Cols: cols, Rows: rows})
	return err
}

// Signal sends a signal (TERM, SIGTERM or 15) to an exec: to the foreground
// group of its terminal, else to its own group. MainID means the main command.
func (c *Client) Signal(ctx context.Context, x id.Exec, signal string) error {
	_, err := invoke[struct{}](ctx, c, proto.OpSignal, proto.SignalArgs{ID: string(x), Signal: signal})
	return err
}

// WaitExec waits until a program has ended and all its output is in the
// guest's buffers; somebody has to read what does not fit there.
func (c *Client) WaitExec(ctx context.Context, x id.Exec) (ExitStatus, error) {
	return invoke[ExitStatus](ctx, c, proto.OpExecWait, proto.IDArgs{ID: string(x)})
}

// ListExecs lists the execs in the order they were started.
func (c *Client) ListExecs(ctx context.Context) ([]ExecInfo, error) {
	r, err := invoke[proto.ExecListResult](ctx, c, proto.OpExecList, nil)
	return r.Execs, err
}

// ForgetExec drops an ended exec with its buffered output.
func (c *Client) ForgetExec(ctx context.Context, x id.Exec) error {
	_, err := invoke[struct{}](ctx, c, proto.OpExecForget, proto.IDArgs{ID: string(x)})
	return err
}

// Ps lists the sandbox's processes.
func (c *Client) Ps(ctx context.Context) ([]Process, error) {
	r, err := invoke[proto.PsResult](ctx, c, proto.OpPs, nil)
	return r.Processes, err
}

// Stream names one of a program's outputs.
type Stream = proto.Kind

// The streams. A terminal has Stdout only.
const (
	Stdout = proto.KindStdout
	Stderr = proto.KindStderr
)

// Output is a piece of a program's output and its place in the stream.
type Output struct {
	Stream Stream
	Offset uint64
	Data   []byte
}

// Attachment is a look at an exec. Next is for one goroutine; Close may be
// called from any.
type Attachment struct {
	// PID is the program's process id inside. Stdout, Stderr and Stdin are
	// the offsets at which the output begins that Next returns, later than
	// asked for when older bytes are no longer kept, and the bytes of input
	// the program has.
	PID                   int
	Stdout, Stderr, Stdin uint64

	s     *stream
	taken [2]uint64 // by the caller
	acked [2]uint64
	exit  *ExitStatus
	once  sync.Once
}

func (c *Client) attach(ctx context.Context, op string, args any, from AttachArgs) (*Attachment, error) {
	s, err := c.open(ctx, op, args)
	if err != nil {
		return nil, err
	}
	r, err := result[proto.AttachResult](s)
	if err != nil {
		s.end()
		return nil, err
	}
	a := &Attachment{PID: r.PID, Stdout: r.Stdout, Stderr: r.Stderr, Stdin: r.Stdin, s: s}
	a.taken = [2]uint64{from.Stdout, from.Stderr}
	a.acked = a.taken
	return a, nil
}

// Next returns the next piece of output, and io.EOF once the program has
// ended and all was returned. Calling it says that the piece before is
// taken: the guest need not keep it, and the program may write more. Stale
// means that another attachment took over.
func (a *Attachment) Next() (Output, error) {
	if a.exit != nil {
		return Output{}, io.EOF
	}
	if err := a.acknowledge(); err != nil {
		return Output{}, err
	}
	f, err := proto.ReadFrame(a.s)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Output{}, lost(a.s.ctx, err)
	}
	switch f.Kind {
	case proto.KindStdout, proto.KindStderr:
		a.taken[f.Kind-proto.KindStdout] = f.Offset + uint64(len(f.Data))
		return Output{Stream: f.Kind, Offset: f.Offset, Data: f.Data}, nil
	case proto.KindExit:
		var status ExitStatus
		if err := json.Unmarshal(f.Data, &status); err != nil {
			return Output{}, errs.New(errs.DataLoss, "exit status is not understood: %w", err)
		}
		a.exit = &status
		a.Close()
		return Output{}, io.EOF
	default:
		a.Close()
		return Output{}, errs.New(errs.Stale, "somebody else attached to this exec")
	}
}

func (a *Attachment) acknowledge() error {
	for i := range a.taken {
		if a.taken[i]-a.acked[i] < ackEvery {
			continue
		}
		frame := proto.AppendFrame(nil, proto.Frame{Kind: proto.KindStdout + proto.Kind(i), Offset: a.taken[i]})
		if _, err := a.s.Write(frame); err != nil {
			return lost(a.s.ctx, err)
		}
		a.acked[i] = a.taken[i]
	}
	return nil
}

// Exit returns how the program ended, after Next returned io.EOF.
func (a *Attachment) Exit() (ExitStatus, bool) {
	if a.exit == nil {
		return ExitStatus{}, false
	}
	return *a.exit, true
}

// Close stops looking. The program goes on.
func (a *Attachment) Close() { a.once.Do(a.s.end) }

// CopyTo copies the output to writers until the program has ended, and
// returns how.
func (a *Attachment) CopyTo(stdout, stderr io.Writer) (ExitStatus, error) {
	for {
		out, err := a.Next()
		if errors.Is(err, io.EOF) {
			return *a.exit, nil
		}
		if err != nil {
			return ExitStatus{}, err
		}
		w := stdout
		if out.Stream == Stderr {
			w = stderr
		}
		if _, err := w.Write(out.Data); err != nil {
			return ExitStatus{}, err
		}
	}
}
