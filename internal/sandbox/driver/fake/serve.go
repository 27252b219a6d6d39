package fake

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/sandbox/guest/proto"
)

func number(n int) string { return strconv.Itoa(n) }

// request answers one request of the host. ctx ends with the session.
func (m *machine) request(ctx context.Context, st io.ReadWriteCloser, epoch uint64) {
	defer st.Close() // the host sees the end or has gone
	var req proto.Request
	if err := proto.ReadMessage(st, &req); err != nil {
		if !errors.Is(err, io.EOF) {
			_ = reply(st, nil, err) // when that fails the host is gone
		}
		return
	}
	c := call{m: m, st: st, args: req.Args, epoch: epoch}
	h, ok := handlers[req.Op]
	if !ok {
		_ = reply(st, nil, errs.New(errs.Unsupported, "the sandbox does not know %.40q", req.Op))
		return
	}
	h(ctx, c)
}

// call is one request and its stream.
type call struct {
	m     *machine
	st    io.ReadWriteCloser
	args  json.RawMessage
	epoch uint64
}

type none struct{}

func reply(w io.Writer, result any, err error) error {
	var r proto.Reply
	if err != nil {
		r.Error = proto.NewFailure(err)
	} else if r.Result, err = json.Marshal(result); err != nil {
		r.Error = proto.NewFailure(err)
	}
	return proto.WriteMessage(w, r)
}

func decode[T any](c call) (T, error) {
	var v T
	if len(c.args) == 0 {
		return v, nil
	}
	if err := json.Unmarshal(c.args, &v); err != nil {
		return v, errs.New(errs.InvalidArgument, "arguments are not understood: %w", err)
	}
	return v, nil
}

// handlers are the operations. They are set before anything runs and only
// read afterwards.
var handlers = map[string]func(context.Context, call){
	proto.OpHello: now((*machine).hello),
	proto.OpPing: now(func(m *machine, _ none) (proto.PingResult, error) {
		return proto.PingResult{NowNanos: m.clock().UnixNano()}, nil
	}),
	proto.OpFreeze: now(func(m *machine, _ proto.FreezeArgs) (proto.FreezeResult, error) {
		m.freeze()
		return proto.FreezeResult{Stopped: len(m.s.procs)}, nil
	}),
	proto.OpThaw:         now(func(m *machine, _ none) (none, error) { m.thaw(); return none{}, nil }),
	proto.OpIdentity:     now((*machine).identify),
	proto.OpIdentityInfo: now((*machine).identity),
	proto.OpPs:           now((*machine).ps),
	proto.OpUsage: now(func(m *machine, _ none) (proto.UsageResult, error) {
		return proto.UsageResult{Memory: 1<<20 + m.s.Files.size()}, nil
	}),
	proto.OpStat: now(func(m *machine, a proto.StatArgs) (proto.StatResult, error) {
		if !path.IsAbs(a.Path) {
			return proto.StatResult{}, errs.New(errs.InvalidArgument, "path %.200q in the sandbox must begin with /", a.Path)
		}
		return m.s.Files.stat(a), nil
	}),
	proto.OpProtect: now(func(*machine, proto.ProtectArgs) (none, error) {
		return none{}, nil // nothing of this machine is shown in a fake
	}),
	proto.OpExecList: now((*machine).execList),
	proto.OpResize: now(func(m *machine, a proto.ResizeArgs) (none, error) {
		x, err := m.exec(a.ID)
		if err == nil && !x.TTY {
			err = errs.New(errs.FailedPrecondition, "exec %s has no terminal", a.ID)
		}
		return none{}, err
	}),
	proto.OpExecForget: now(func(m *machine, a proto.IDArgs) (none, error) { return none{}, m.forget(a.ID) }),
	proto.OpStart:      thawed((*machine).start),
	proto.OpCloseStdin: thawed(func(m *machine, a proto.IDArgs) (none, error) { return none{}, m.closeStdin(a.ID) }),
	proto.OpSignal:     thawed(func(m *machine, a proto.SignalArgs) (none, error) { return none{}, m.kill(a) }),
	proto.OpWaitMain:   serveWaitMain,
	proto.OpExecWait:   serveExecWait,
	proto.OpExec:       serveExec,
	proto.OpAttach:     serveAttach,
	proto.OpStdin:      serveStdin,
	proto.OpPut:        servePut,
	proto.OpGet:        serveGet,
	proto.OpDial:       serveDial,
	proto.OpStop:       serveStop,
}

// now answers from the state as it is.
func now[T, R any](f func(*machine, T) (R, error)) func(context.Context, call) {
	return func(_ context.Context, c call) {
		a, err := decode[T](c)
		var r R
		if err == nil {
			err = errs.New(errs.Unavailable, "the sandbox has ended")
			c.m.do(func() { r, err = f(c.m, a) })
		}
		_ = reply(c.st, r, err) // when that fails the host is gone
	}
}

// thawed answers once nothing is frozen.
func thawed[T, R any](f func(*machine, T) (R, error)) func(context.Context, call) {
	return func(ctx context.Context, c call) {
		a, err := decode[T](c)
		var r R
		if err == nil {
			err = c.m.running(ctx, func() error {
				var err error
				r, err = f(c.m, a)
				return err
			})
		}
		_ = reply(c.st, r, err) // when that fails the host is gone
	}
}

func (m *machine) clock() time.Time { return time.Now().Add(m.s.Step) }

func (m *machine) hello(a proto.HelloArgs) (proto.HelloResult, error) {
	if a.Min > proto.Version || a.Max < 1 {
		return proto.HelloResult{}, errs.New(errs.Unsupported, "the sandbox speaks protocol version 1 to %d, the daemon %d to %d", proto.Version, a.Min, a.Max)
	}
	r := proto.HelloResult{
		Version: min(a.Max, proto.Version), Epoch: m.epoch, BootNanos: m.s.Boot.UnixNano(), NowNanos: m.clock().UnixNano(),
		Arch: runtime.GOARCH, Frozen: m.s.Frozen, Started: m.s.MainPID != 0, MainPID: m.s.MainPID, MainExit: m.s.MainExit,
	}
	if m.s.Identity != nil {
		r.UUID = m.s.Identity.UUID
	}
	return r, nil
}

func (m *machine) start(a proto.StartArgs) (proto.StartResult, error) {
	if m.s.MainPID != 0 {
		return proto.StartResult{}, errs.New(errs.AlreadyExists, "the main command was started before; a sandbox has one")
	}
	if m.log != nil {
		m.log.SetLimit(a.LogLimit)
	}
	p, err := m.spawn(m.command(a.Command, mainOut, false))
	if err != nil {
		return proto.StartResult{}, err
	}
	m.s.MainPID = p.PID
	m.run(p)
	p.event(Event{Kind: InputEnd})
	return proto.StartResult{PID: p.PID}, nil
}

func (m *machine) ps(none) (proto.PsResult, error) {
	r := proto.PsResult{Processes: []proto.Process{{PID: 1, State: "S", Argv: []string{"/.brood/bin/brood-guest", "init"}}}}
	state := "S"
	if m.s.Frozen {
		state = "T"
	}
	for pid := range m.s.LastPID + 1 {
		if p := m.s.procs[pid]; p != nil {
			r.Processes = append(r.Processes, proto.Process{PID: pid, PPID: p.PPID, State: state, Argv: p.Argv})
		}
	}
	return r, nil
}

func (m *machine) execList(none) (proto.ExecListResult, error) {
	r := proto.ExecListResult{Execs: []proto.ExecInfo{}}
	for _, id := range m.s.Order {
		if x := m.s.Execs[id]; x != nil {
			r.Execs = append(r.Execs, x.info())
		}
	}
	return r, nil
}

// awaiting replies with what f finds, at the latest when the host goes.
func awaiting[R any](ctx context.Context, c call, f func() (R, bool, error)) {
	watched(ctx, c.st, func(ctx context.Context) {
		var r R
		var failed error
		err := c.m.await(ctx, func() bool {
			var ok bool
			r, ok, failed = f()
			return ok || failed != nil
		})
		_ = reply(c.st, r, errors.Join(err, failed)) // when that fails the host is gone
	})
}

// watched runs f with a context that ends with the host's side of the stream.
func watched(ctx context.Context, st io.ReadWriteCloser, f func(context.Context)) {
	g := life.NewGroup(ctx)
	g.Go("host", func(context.Context) error {
		var b [1]byte
		_, err := st.Read(b[:])
		return errors.Join(err, io.ErrUnexpectedEOF)
	})
	f(g.Context())
	_ = st.Close()
	_ = g.Wait() // its only error is that the host went
}

func serveWaitMain(ctx context.Context, c call) {
	awaiting(ctx, c, func() (proto.ExitStatus, bool, error) {
		switch {
		case c.m.s.MainPID == 0:
			return proto.ExitStatus{}, false, errs.New(errs.FailedPrecondition, "the main command was not started")
		case c.m.s.MainExit == nil || c.m.s.Frozen:
			return proto.ExitStatus{}, false, nil
		}
		return *c.m.s.MainExit, true, nil
	})
}

func serveExecWait(ctx context.Context, c call) {
	a, err := decode[proto.IDArgs](c)
	awaiting(ctx, c, func() (proto.ExitStatus, bool, error) {
		if err != nil {
			return proto.ExitStatus{}, false, err
		}
		x, err := c.m.exec(a.ID)
		if err != nil || x.Exit == nil {
			return proto.ExitStatus{}, false, err
		}
		return *x.Exit, true, nil
	})
}

func serveExec(ctx context.Context, c call) {
	a, err := decode[proto.ExecArgs](c)
	var x *exec
	var at *attachment
	var info any
	if err == nil {
		err = c.m.running(ctx, func() error {
			var err error
			if x, err = c.m.startExec(a); err != nil {
				return err
			}
			info = x.info()
			if a.Attach {
				at, info, err = x.attach([2]uint64{})
			}
			return err
		})
	}
	if reply(c.st, info, err) == nil && err == nil && at != nil {
		c.m.look(ctx, c.st, x, at)
	}
}

func serveAttach(ctx context.Context, c call) {
	a, err := decode[proto.AttachArgs](c)
	var x *exec
	var at *attachment
	var r proto.AttachResult
	if err == nil {
		err = c.m.await(ctx, func() bool { return true })
	}
	if err == nil {
		c.m.do(func() {
			if x, err = c.m.exec(a.ID); err == nil {
				at, r, err = x.attach([2]uint64{a.Stdout, a.Stderr})
			}
		})
	}
	if reply(c.st, r, err) == nil && err == nil {
		c.m.look(ctx, c.st, x, at)
	}
}

func serveStdin(ctx context.Context, c call) {
	a, err := decode[proto.StdinArgs](c)
	if err == nil && (a.Size < 0 || a.Size > proto.MaxStdin) {
		err = errs.New(errs.InvalidArgument, "input of %d bytes: send at most %d at once", a.Size, proto.MaxStdin)
	}
	if err != nil {
		_ = reply(c.st, nil, err) // when that fails the host is gone
		return
	}
	data := make([]byte, a.Size)
	if _, err := io.ReadFull(c.st, data); err != nil {
		return // torn: the host is gone
	}
	var r proto.StdinResult
	err = c.m.running(ctx, func() error {
		var err error
		r.Offset, err = c.m.stdin(a, data)
		return err
	})
	_ = reply(c.st, r, err)
}

func servePut(ctx context.Context, c call) {
	a, err := decode[proto.PutArgs](c)
	if err == nil && !path.IsAbs(a.Dir) {
		err = errs.New(errs.InvalidArgument, "path %.200q in the sandbox must begin with /", a.Dir)
	}
	var r proto.CopyResult
	var all []entry
	if err == nil {
		all, err = unpack(proto.NewChunkReader(c.st))
	}
	if err == nil {
		err = c.m.running(ctx, func() error {
			var err error
			r, err = c.m.s.Files.put(a, all)
			return err
		})
	}
	_ = reply(c.st, r, err) // when that fails the host is gone
}

func serveGet(ctx context.Context, c call) {
	a, err := decode[proto.GetArgs](c)
	var all []entry
	if err == nil {
		err = c.m.running(ctx, func() error {
			var err error
			all, err = c.m.s.Files.get(a)
			return err
		})
	}
	if reply(c.st, none{}, err) != nil || err != nil {
		return
	}
	w := proto.NewChunkWriter(c.st)
	w.Zeros = a.Zeros
	r, err := pack(w, all)
	if err == nil && w.Close() == nil {
		_ = proto.WriteMessage(c.st, r)
	}
}

// serveDial is a connection to a program that listens: each line is asked.
func serveDial(ctx context.Context, c call) {
	a, err := decode[proto.DialArgs](c)
	if err == nil {
		err = c.m.running(ctx, func() error {
			if c.m.listener(a.Port) == nil {
				return errs.New(errs.Unavailable, "port %d of the sandbox: connection refused", a.Port)
			}
			return nil
		})
	}
	if reply(c.st, none{}, err) != nil || err != nil {
		return
	}
	lines := bufio.NewReader(c.st)
	for hangup := false; !hangup; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var answer []byte
		err = c.m.running(ctx, func() error {
			p := c.m.listener(a.Port)
			if p == nil {
				return io.EOF
			}
			p.answer, p.hangup = nil, false
			p.event(Event{Kind: Asked, Data: line[:len(line)-1]})
			answer, hangup = slices.Clone(p.answer), p.hangup || p.gone
			return nil
		})
		if err != nil {
			return
		}
		if _, err := c.st.Write(answer); err != nil {
			return
		}
	}
}

// serveStop ends the sandbox: the main command gets a TERM and, when it does
// not end by that, a KILL.
func serveStop(ctx context.Context, c call) {
	a, err := decode[proto.StopArgs](c)
	var r proto.StopResult
	c.m.do(func() {
		c.m.thaw()
		for _, p := range c.m.family(c.m.s.MainPID) {
			c.m.signal(p, unix.SIGTERM)
		}
	})
	if a.GraceMillis > 0 {
		grace, cancel := context.WithTimeout(ctx, time.Duration(a.GraceMillis)*time.Millisecond)
		_ = c.m.await(grace, func() bool { return c.m.s.procs[c.m.s.MainPID] == nil }) // then by force
		cancel()
	}
	c.m.do(func() {
		for _, p := range c.m.s.procs {
			c.m.exit(p, 128+int(unix.SIGKILL), "SIGKILL")
		}
		r.MainExit = c.m.s.MainExit
	})
	_ = reply(c.st, r, err)
	_ = c.st.Close()
	_, _ = io.Copy(io.Discard, c.st) // the host ends its side when it has the reply
	c.m.end()
}
