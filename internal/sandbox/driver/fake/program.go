package fake

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// EventKind says what happened to a program.
type EventKind int

// The events.
const (
	Started    EventKind = iota // it may print, listen, spawn, ask to be woken, exit
	Woken                       // what it asked for with WakeAfter
	Input                       // Data came on its standard input
	InputEnd                    // no more input will come
	Signalled                   // Signal came; it ends the program unless it calls Catch
	Asked                       // a line, Data, came on a connection to a port of its
	ChildEnded                  // PID, a child of its, ended with Code
)

// Event is what a Program is told.
type Event struct {
	Kind   EventKind
	Data   []byte
	Signal string
	PID    int
	Code   int
}

// Program is a program as a state machine. A pointer to a struct whose
// exported fields are all of its state and go through JSON: that is how it is
// copied into forks. Handle is called with one event at a time, must not wait
// and must not keep the process or the data.
type Program interface {
	Handle(p *Process, e Event)
}

// Process is a running program as it sees itself. Its methods are for use in
// Handle only.
type Process struct {
	PID, PPID int
	Argv, Env []string
	Cwd       string
	TTY       bool

	m       *machine
	name    string // of the program
	prog    Program
	out     string // where output goes: mainOut, an exec's id, filePrefix and a path, or nowhere
	ports   []uint16
	left    bool // it left its parent's session
	started time.Time

	due    time.Time     // when it is to be woken; zero: not
	paused time.Duration // what was left of that when it was frozen
	timer  *time.Timer

	caught bool
	answer []byte
	hangup bool
	gone   bool
}

const (
	mainOut    = "main:"
	filePrefix = "file:"
)

// Print writes to the standard output.
func (p *Process) Print(b []byte) { p.m.output(p, 0, b) }

// PrintError writes to the standard error.
func (p *Process) PrintError(b []byte) { p.m.output(p, 1, b) }

// Exit ends the program.
func (p *Process) Exit(code int) { p.m.exit(p, code, "") }

// WakeAfter asks for one Woken after a time of running; time frozen does not
// count. It replaces what was asked before.
func (p *Process) WakeAfter(d time.Duration) {
	p.due, p.paused = time.Now().Add(d), d
	p.arm()
}

// Listen makes lines to a port come as Asked. False: the port is taken.
func (p *Process) Listen(port uint16) bool {
	if p.m.listener(port) != nil {
		return false
	}
	p.ports = append(p.ports, port)
	return true
}

// Answer writes to the connection of the Asked being handled.
func (p *Process) Answer(b []byte) { p.answer = append(p.answer, b...) }

// Hangup closes the connection of the Asked being handled, after the answer.
func (p *Process) Hangup() { p.hangup = true }

// Catch says that the signal being handled does not end the program.
func (p *Process) Catch() { p.caught = true }

// Spawn makes a child that shares the output. It begins with Run.
func (p *Process) Spawn(argv ...string) (*Process, error) { return p.spawn(p.out, argv) }

// Run lets a spawned child begin.
func (p *Process) Run() { p.m.run(p) }

func (p *Process) spawn(out string, argv []string) (*Process, error) {
	return p.m.spawn(spawning{argv: argv, env: p.Env, cwd: p.Cwd, parent: p.PID, out: out, tty: p.TTY})
}

// Detach makes a process a daemon: a child of process 1 in a session of its
// own, with no output.
func (p *Process) Detach() { p.PPID, p.left, p.out, p.TTY = 1, true, "", false }

// Alive reports whether a process runs.
func (p *Process) Alive(pid int) bool { return p.m.s.procs[pid] != nil }

// Parent returns a process's parent, 0 when there is no such process.
func (p *Process) Parent(pid int) int {
	if q := p.m.s.procs[pid]; q != nil {
		return q.PPID
	}
	return 0
}

// Getenv returns a variable of the environment.
func (p *Process) Getenv(key string) string {
	for _, kv := range slices.Backward(p.Env) {
		if v, ok := strings.CutPrefix(kv, key+"="); ok {
			return v
		}
	}
	return ""
}

// Hostname returns the sandbox's host name.
func (p *Process) Hostname() string { return p.m.s.Hostname }

// ReadFile returns a file's content.
func (p *Process) ReadFile(name string) ([]byte, error) { return p.m.s.Files.read(p.abs(name)) }

// WriteFile replaces a file; its folder must be there.
func (p *Process) WriteFile(name string, data []byte) error {
	return p.m.s.Files.write(p.abs(name), data, 0o644)
}

// Stat reports whether a path exists.
func (p *Process) Stat(name string) bool { return p.m.s.Files[path.Clean(p.abs(name))] != nil }

// Remove deletes a file.
func (p *Process) Remove(name string) error {
	name = p.abs(name)
	if p.m.s.Files[name] == nil {
		return fs.ErrNotExist
	}
	delete(p.m.s.Files, name)
	return nil
}

func (p *Process) abs(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join("/", p.Cwd, name)
}

// arm sets the timer that wakes the program, unless it is frozen or gone.
func (p *Process) arm() {
	p.disarm()
	if p.due.IsZero() || p.gone || p.m.s.Frozen {
		return
	}
	due := p.due
	p.timer = time.AfterFunc(time.Until(due), func() {
		p.m.do(func() {
			if !p.gone && !p.m.s.Frozen && p.due.Equal(due) {
				p.due = time.Time{}
				p.event(Event{Kind: Woken})
			}
		})
	})
}

func (p *Process) disarm() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}

// event tells the program unless it is gone.
func (p *Process) event(e Event) {
	if !p.gone {
		p.prog.Handle(p, e)
	}
}
