package worker

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"brood/internal/base/errs"
	"brood/internal/run"
)

// Terminal is the one that this program was started from. An interactive task
// that ends has it while it runs: its processes read and write it themselves,
// what is typed there is theirs, Ctrl-C too, and nothing of its output is
// captured or masked. The caller sees to it that one such task runs at a time
// and that nobody else writes there meanwhile.
type Terminal struct {
	In, Out *os.File
}

// stopWithin is how long this program waits to be stopped by its own signal,
// which comes within microseconds or, where nobody could continue it, never.
const stopWithin = 100 * time.Millisecond

// loan is a terminal that the steps of an attempt have, one after the other.
type loan struct {
	Terminal
	own   int         // this program's process group
	modes *term.State // what the terminal is to be afterwards
	away  bool        // a step has it, or may have
}

// lend returns nil where a task gets no terminal: there is none, it is not the
// one that controls this program, or it is another's now, since this program
// is in the background.
func (w *Worker) lend(t *run.Task) *loan {
	if w.terminal == nil || !t.Interactive || t.Persistent {
		return nil
	}
	l := &loan{Terminal: *w.terminal, own: syscall.Getpgrp()}
	if !l.mine() {
		return nil
	}
	var err error
	if l.modes, err = term.GetState(l.fd()); err != nil {
		return nil
	}
	return l
}

func (l *loan) fd() int { return int(l.In.Fd()) }

// mine says that this program's process group is the foreground's.
func (l *loan) mine() bool {
	front, err := unix.IoctlGetInt(l.fd(), unix.TIOCGPGRP)
	return err == nil && front == l.own
}

// start starts a step in the foreground.
func (l *loan) start(s site, c command) (*os.Process, error) {
	c.files, c.foreground = []*os.File{l.In, l.Out, l.Out}, l.In
	l.away = true
	return s.start(c)
}

// wait waits for the end of a step's process, and sees when it is stopped,
// which os.Process does not.
func (l *loan) wait(p *os.Process) (ending, error) {
	defer p.Release() //nolint:errcheck // it frees memory and a descriptor
	for {
		e := ending{usage: new(syscall.Rusage)}
		_, err := syscall.Wait4(p.Pid, &e.status, syscall.WUNTRACED, e.usage)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return ending{}, errs.New(errs.Internal, "waiting for process %d: %w", p.Pid, err)
		case e.status.Stopped():
			l.pause(p.Pid)
		default:
			return e, nil
		}
	}
}

// pause passes Ctrl-Z on: this program's whole group stops as if it had got the
// key, and goes on with the task when the shell says so. Where no shell could,
// the system does not stop the group, and the task goes on at once.
func (l *loan) pause(leader int) {
	theirs, err := term.GetState(l.fd())
	l.takeBack()
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	defer signal.Stop(resumed)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	late := time.NewTimer(stopWithin)
	defer late.Stop()
	select {
	case <-resumed:
	case <-late.C:
	}
	// In the background the task goes on without the terminal; when it reads
	// there, the system stops it again.
	if l.mine() {
		if err == nil {
			_ = term.Restore(l.fd(), theirs)
		}
		l.away = unix.IoctlSetPointerInt(l.fd(), unix.TIOCSPGRP, leader) == nil
	}
	_ = syscall.Kill(-leader, syscall.SIGCONT)
}

// takeBack makes the terminal this program's again, with the modes that it had.
// Errors are those of a terminal that is gone.
func (l *loan) takeBack() {
	if !l.away {
		return
	}
	l.away = false
	fromBehind(func() {
		_ = unix.IoctlSetPointerInt(l.fd(), unix.TIOCSPGRP, l.own)
		_ = term.Restore(l.fd(), l.modes)
	})
}
