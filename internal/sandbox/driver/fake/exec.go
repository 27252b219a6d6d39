package fake

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/sandbox/guest/proto"
)

// maxKept bounds the output that is kept of an exec, each stream, in bytes;
// older output is dropped. A real guest would hold the program up.
const maxKept = 1 << 20

// exec is a program started beside the main command.
type exec struct {
	ID      string
	PID     int
	Argv    []string
	TTY     bool
	Out     [2]kept
	StdinN  uint64
	Stdin   bool // it takes input
	Discard bool // its host is not here: no output is kept
	Exit    *proto.ExitStatus

	attached *attachment
}

// kept is the end of a stream.
type kept struct {
	Start uint64 // of Data
	Data  []byte
}

func (k *kept) end() uint64 { return k.Start + uint64(len(k.Data)) }

// attachment is one stream that looks at an exec.
type attachment struct{ sent [2]uint64 }

func (x *exec) put(stream int, b []byte) {
	if x.Discard {
		return
	}
	k := &x.Out[stream]
	k.Data = append(k.Data, b...)
	if over := len(k.Data) - maxKept; over > 0 {
		k.Data = slices.Clone(k.Data[over:])
		k.Start += uint64(over)
	}
}

// release cuts an exec off from its host, in a fork.
func (m *machine) release(x *exec) {
	x.Discard, x.attached = true, nil
	if p := m.s.procs[x.PID]; p != nil && x.Stdin && !x.TTY {
		p.event(Event{Kind: InputEnd})
	}
	delete(m.s.Execs, x.ID)
}

func (m *machine) exec(id string) (*exec, error) {
	if x := m.s.Execs[id]; x != nil {
		return x, nil
	}
	return nil, errs.New(errs.NotFound, "exec %.80q does not exist: it was never started, was forgotten, or belonged to the sandbox this one was forked from", id)
}

// startExec starts a program under an id.
func (m *machine) startExec(a proto.ExecArgs) (*exec, error) {
	if a.ID == "" || a.ID == proto.MainID {
		return nil, errs.New(errs.InvalidArgument, "exec id %q is not valid", a.ID)
	}
	if m.s.Execs[a.ID] != nil {
		return nil, errs.New(errs.AlreadyExists, "exec %s exists: attach to it, or use another id", a.ID)
	}
	p, err := m.spawn(m.command(a.Command, a.ID, a.TTY))
	if err != nil {
		return nil, err
	}
	x := &exec{ID: a.ID, PID: p.PID, Argv: a.Argv, TTY: a.TTY, Stdin: a.Stdin || a.TTY}
	m.s.Execs[a.ID] = x
	m.s.Order = append(m.s.Order, a.ID)
	m.run(p)
	if !x.Stdin {
		p.event(Event{Kind: InputEnd})
	}
	return x, nil
}

// command makes a request's command one to spawn.
func (m *machine) command(c proto.Command, out string, tty bool) spawning {
	env := append(slices.Clone(m.s.Env), "PATH=/usr/bin:/bin:/.brood/bin", "HOME=/root", "USER=root")
	if c.User != "" {
		env = append(env, "USER="+c.User)
	}
	cwd := c.Cwd
	if cwd == "" {
		cwd = "/"
	}
	return spawning{argv: c.Argv, env: append(env, c.Env...), cwd: cwd, parent: 1, out: out, tty: tty}
}

func (x *exec) info() proto.ExecInfo {
	return proto.ExecInfo{
		ID: x.ID, PID: x.PID, Argv: x.Argv, TTY: x.TTY, Attached: x.attached != nil,
		Stdin: x.StdinN, Stdout: x.Out[0].end(), Stderr: x.Out[1].end(), Exit: x.Exit,
	}
}

// attach makes a new attachment the only one.
func (x *exec) attach(from [2]uint64) (*attachment, proto.AttachResult, error) {
	a := &attachment{}
	for i := range x.Out {
		if from[i] > x.Out[i].end() {
			return nil, proto.AttachResult{}, errs.New(errs.InvalidArgument,
				"exec %s has written %d bytes so far; output from %d on was asked for", x.ID, x.Out[i].end(), from[i])
		}
		a.sent[i] = max(from[i], x.Out[i].Start)
	}
	x.attached = a
	return a, proto.AttachResult{PID: x.PID, Stdout: a.sent[0], Stderr: a.sent[1], Stdin: x.StdinN}, nil
}

// next returns the next frame for an attachment; last says that none follows.
func (x *exec) next(a *attachment) (f *proto.Frame, last bool) {
	if x.attached != a {
		if x.Discard {
			return nil, true
		}
		return &proto.Frame{Kind: proto.KindDisplaced}, true
	}
	for i := range x.Out {
		k := &x.Out[i]
		a.sent[i] = max(a.sent[i], k.Start)
		if data := k.Data[a.sent[i]-k.Start:]; len(data) > 0 {
			data = slices.Clone(data[:min(len(data), proto.MaxFrame)])
			f := &proto.Frame{Kind: proto.KindStdout + proto.Kind(i), Offset: a.sent[i], Data: data}
			a.sent[i] += uint64(len(data))
			return f, false
		}
	}
	if x.Exit != nil {
		status, _ := json.Marshal(x.Exit) // two plain fields
		return &proto.Frame{Kind: proto.KindExit, Data: status}, true
	}
	return nil, false
}

// look sends an exec's output to a stream until the program has ended, the
// host goes or another stream takes over.
func (m *machine) look(ctx context.Context, st io.ReadWriteCloser, x *exec, a *attachment) {
	g := life.NewGroup(ctx)
	g.Go("host", func(context.Context) error {
		_, err := io.Copy(io.Discard, st) // acknowledgements are not needed: the kept output is bounded
		m.do(func() {
			if x.attached == a {
				x.attached = nil
			}
		})
		if err == nil {
			err = io.EOF
		}
		return err
	})
	for last := false; !last; {
		var f *proto.Frame
		err := m.await(g.Context(), func() bool {
			if m.s.Frozen {
				return false
			}
			f, last = x.next(a)
			return f != nil || last
		})
		if err != nil {
			break
		}
		if f == nil {
			break
		}
		if _, err := st.Write(proto.AppendFrame(nil, *f)); err != nil {
			break
		}
	}
	_ = st.Close()
	_ = g.Wait() // its only error is that the host went
}

// stdin gives a program input at an offset of all of it.
func (m *machine) stdin(a proto.StdinArgs, data []byte) (uint64, error) {
	x, err := m.exec(a.ID)
	if err != nil {
		return 0, err
	}
	if a.Offset >= 0 {
		if uint64(a.Offset) > x.StdinN {
			return x.StdinN, errs.New(errs.FailedPrecondition, "input at %d is missing: the program has %d bytes; send from there", a.Offset, x.StdinN)
		}
		data = data[min(uint64(len(data)), x.StdinN-uint64(a.Offset)):]
	}
	p := m.s.procs[x.PID]
	if p == nil || !x.Stdin {
		return x.StdinN, errs.New(errs.FailedPrecondition, "exec %s takes no input: it was started without, or its input is closed", a.ID)
	}
	x.StdinN += uint64(len(data))
	if x.TTY {
		m.typed(p, data)
	} else if len(data) > 0 {
		p.event(Event{Kind: Input, Data: data})
	}
	return x.StdinN, nil
}

// typed is input on a terminal: it is echoed, and some keys mean something.
func (m *machine) typed(p *Process, data []byte) {
	for _, b := range data {
		switch b {
		case 3:
			m.output(p, 0, []byte("^C"))
			m.signal(p, unix.SIGINT)
		case 4:
			p.event(Event{Kind: InputEnd})
		case '\r', '\n':
			m.output(p, 0, []byte("\r\n"))
			p.event(Event{Kind: Input, Data: []byte("\n")})
		default:
			m.output(p, 0, []byte{b})
			p.event(Event{Kind: Input, Data: []byte{b}})
		}
	}
}

func (m *machine) closeStdin(id string) error {
	x, err := m.exec(id)
	if err != nil {
		return err
	}
	p := m.s.procs[x.PID]
	if p != nil && x.Stdin {
		x.Stdin = x.TTY
		p.event(Event{Kind: InputEnd})
	}
	return nil
}

// kill sends a signal to the group of an exec or of the main command.
func (m *machine) kill(a proto.SignalArgs) error {
	sig, err := parseSignal(a.Signal)
	if err != nil {
		return err
	}
	pid := m.s.MainPID
	if a.ID != proto.MainID {
		x, err := m.exec(a.ID)
		if err != nil {
			return err
		}
		pid = x.PID
	}
	if pid == 0 {
		return errs.New(errs.FailedPrecondition, "the main command was not started")
	}
	if m.s.procs[pid] == nil {
		return errs.New(errs.FailedPrecondition, "the program has ended; there is nothing to signal")
	}
	for _, p := range m.family(pid) {
		m.signal(p, sig)
	}
	return nil
}

// parseSignal understands TERM, SIGTERM and 15.
func parseSignal(name string) (syscall.Signal, error) {
	for n := syscall.Signal(1); n <= 64; n++ {
		known := unix.SignalName(n)
		if known != "" && (name == known || "SIG"+name == known) || name == number(int(n)) {
			return n, nil
		}
	}
	return 0, errs.New(errs.InvalidArgument, "signal %.20q is not known: use a name such as TERM, or a number from 1 to 64", name)
}

func (m *machine) forget(id string) error {
	x, err := m.exec(id)
	if err != nil {
		return err
	}
	if x.Exit == nil {
		return errs.New(errs.FailedPrecondition, "exec %s is running: signal it and wait for its end first", id)
	}
	delete(m.s.Execs, id)
	m.s.Order = slices.DeleteFunc(m.s.Order, func(other string) bool { return other == id })
	return nil
}
