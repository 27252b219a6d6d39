package fake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/sandbox"
	"brood/internal/sandbox/guest/logs"
	"brood/internal/sandbox/guest/proto"
)

// state is what is inside a sandbox: all that a capture saves.
type state struct {
	Hostname string
	Boot     time.Time
	Step     time.Duration // of the clock, beside the real one
	LastPID  int
	Files    tree
	MainPID  int // 0: not started
	MainExit *proto.ExitStatus
	Execs    map[string]*exec
	Order    []string // ids of execs as they were started
	Frozen   bool
	Identity *proto.IdentityResult
	Env      []string // of the identity, for every program

	procs map[int]*Process
}

func fresh(hostname string) state {
	return state{
		Hostname: hostname, Boot: time.Now(), LastPID: 1, Files: newTree(hostname),
		Execs: map[string]*exec{}, procs: map[int]*Process{},
	}
}

// machine is one sandbox.
type machine struct {
	w     *World
	box   *box
	magic []byte
	log   *logs.Writer // nil: output of the main command is dropped
	files []*os.File
	group *life.Group

	mu      sync.Mutex // guards what follows; held over Program.Handle and writes to the log
	s       state
	change  chan struct{} // closed and replaced when anything changes
	epoch   uint64        // sessions
	handles map[net.Conn]bool
	ended   bool
}

func newMachine(w *World, b *box, magic []byte, f sandbox.Files) (*machine, error) {
	m := &machine{
		w: w, box: b, magic: magic, group: life.NewGroup(context.Background()),
		s: fresh(""), change: make(chan struct{}), handles: map[net.Conn]bool{},
	}
	var segments [2]logs.File
	for i, from := range f.Log {
		if from == nil {
			return m, nil
		}
		own, err := duplicate(from)
		if err != nil {
			return nil, errors.Join(err, m.closeFiles())
		}
		m.files = append(m.files, own)
		segments[i] = own
	}
	m.log = logs.NewWriter(segments)
	if err := m.log.Detect(); err != nil {
		return nil, errors.Join(err, m.closeFiles())
	}
	return m, nil
}

// duplicate opens a caller's file once more, since the caller closes it.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("log file: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func (m *machine) closeFiles() error {
	var all error
	for _, f := range m.files {
		all = errors.Join(all, f.Close())
	}
	m.files = nil
	return all
}

// do changes the state and tells who waits.
func (m *machine) do(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return
	}
	f()
	m.changed()
}

func (m *machine) changed() {
	close(m.change)
	m.change = make(chan struct{})
}

// await calls f, which looks at the state or changes it, until it returns
// true.
func (m *machine) await(ctx context.Context, f func() bool) error {
	for {
		m.mu.Lock()
		if m.ended {
			m.mu.Unlock()
			return errs.New(errs.Unavailable, "the sandbox has ended")
		}
		done := f()
		if done {
			m.changed()
		}
		change := m.change
		m.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// running waits until nothing is frozen and then changes the state.
func (m *machine) running(ctx context.Context, f func() error) error {
	var err error
	e := m.await(ctx, func() bool {
		if m.s.Frozen {
			return false
		}
		err = f()
		return true
	})
	return errors.Join(e, err)
}

// boot sets the timers of what runs.
func (m *machine) boot() {
	m.do(func() {
		for _, p := range m.s.procs {
			p.arm()
		}
	})
}

func (m *machine) over() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended
}

// end ends everything inside at once.
func (m *machine) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return
	}
	m.ended = true
	for _, p := range m.s.procs {
		p.disarm()
	}
	for c := range m.handles {
		_ = c.Close() // a pipe's never fails
	}
	m.changed()
	m.box.end()
}

// close is end, and waits until nothing of it is left.
func (m *machine) close() error {
	m.end()
	return errors.Join(m.group.Stop(), m.closeFiles())
}

func (m *machine) freeze() {
	if m.s.Frozen {
		return
	}
	m.s.Frozen = true
	for _, p := range m.s.procs {
		p.disarm()
		if !p.due.IsZero() {
			p.paused = time.Until(p.due)
		}
	}
}

func (m *machine) thaw() {
	if !m.s.Frozen {
		return
	}
	m.s.Frozen = false
	if m.log != nil {
		_ = m.log.Detect() // writing finds out what is wrong with it
	}
	for _, p := range m.s.procs {
		if !p.due.IsZero() {
			p.due = time.Now().Add(p.paused)
			p.arm()
		}
	}
}

type spawning struct {
	argv, env []string
	cwd       string
	parent    int
	out       string
	tty       bool
}

// spawn starts a program.
func (m *machine) spawn(a spawning) (*Process, error) {
	if len(a.argv) == 0 || a.argv[0] == "" {
		return nil, errs.New(errs.InvalidArgument, "no command given")
	}
	name, prog, err := m.w.program(a.argv[0])
	if err != nil {
		return nil, err
	}
	m.s.LastPID++
	p := &Process{
		PID: m.s.LastPID, PPID: a.parent, Argv: a.argv, Env: a.env, Cwd: a.cwd, TTY: a.tty,
		m: m, name: name, prog: prog, out: a.out, started: time.Now(),
	}
	m.s.procs[p.PID] = p
	return p, nil
}

// run tells a spawned program that it runs. It is apart from spawn so that
// the parent can note the child first.
func (m *machine) run(p *Process) { p.event(Event{Kind: Started}) }

// exit ends a process; its children become those of process 1.
func (m *machine) exit(p *Process, code int, signal string) {
	if p.gone {
		return
	}
	p.gone = true
	p.disarm()
	delete(m.s.procs, p.PID)
	for _, q := range m.s.procs {
		if q.PPID == p.PID {
			q.PPID = 1
		}
	}
	status := &proto.ExitStatus{Code: code, Signal: signal}
	if p.PID == m.s.MainPID {
		m.s.MainExit = status
	}
	for _, x := range m.s.Execs {
		if x.PID == p.PID {
			x.Exit = status
		}
	}
	if parent := m.s.procs[p.PPID]; parent != nil {
		parent.event(Event{Kind: ChildEnded, PID: p.PID, Code: code})
	}
}

// output takes what a program writes to where its output goes.
func (m *machine) output(p *Process, stream int, b []byte) {
	switch name, toFile := cutFile(p.out); {
	case len(b) == 0 || p.out == "":
	case toFile:
		_ = m.s.Files.append(name, b) // a program that cannot write goes on
	case p.out == mainOut:
		if m.log != nil {
			m.log.Write(logs.Entry{Stream: logs.Stdout + logs.Stream(stream), Time: time.Now(), Data: b})
		}
	default:
		if x := m.s.Execs[p.out]; x != nil && x.PID != 0 {
			if x.TTY {
				stream = 0
			}
			x.put(stream, b)
		}
	}
}

func (m *machine) listener(port uint16) *Process {
	for _, p := range m.s.procs {
		if slices.Contains(p.ports, port) {
			return p
		}
	}
	return nil
}

// family returns a process and its descendants of the same session, children
// before their parents.
func (m *machine) family(pid int) []*Process {
	var all []*Process
	for _, p := range m.s.procs {
		if p.PPID == pid && !p.left {
			all = append(all, m.family(p.PID)...)
		}
	}
	if p := m.s.procs[pid]; p != nil {
		all = append(all, p)
	}
	return all
}

// signal sends a signal to a process.
func (m *machine) signal(p *Process, sig syscall.Signal) {
	name := unix.SignalName(sig)
	if p.gone || sig == 0 || sig == unix.SIGCHLD || sig == unix.SIGWINCH || sig == unix.SIGCONT {
		return
	}
	if sig != unix.SIGKILL {
		p.caught = false
		p.event(Event{Kind: Signalled, Signal: name})
		if p.caught {
			return
		}
	}
	m.exit(p, 128+int(sig), name)
}
