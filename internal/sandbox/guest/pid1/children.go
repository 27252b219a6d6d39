//go:build linux

package pid1

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/proto"
)

// children owns every process the server started. It is the only one that
// waits for processes: nothing else may call Wait, or statuses get lost.
type children struct {
	os  OS
	all bool // reap what is not known too: PID 1 inherits orphans

	mu   sync.Mutex // also held over fork and kill, so that a pid means what it says
	live map[int]*child
}

// child is one started process. status is set before done is closed.
type child struct {
	pid    int
	done   chan struct{}
	status proto.ExitStatus
}

func (c *child) exited() *proto.ExitStatus {
	select {
	case <-c.done:
		return &c.status
	default:
		return nil
	}
}

// program is a command made ready: nothing is left to look up.
type program struct {
	path string
	argv []string
	env  []string
	cwd  string
	cred *syscall.Credential
}

// start runs p in a session of its own on the given descriptors. With tty its
// descriptor 0 becomes the controlling terminal.
func (c *children) start(p program, files [3]int, tty bool) (*child, error) {
	attr := &syscall.ProcAttr{
		Dir: p.cwd, Env: p.env,
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: tty, Ctty: 0, Credential: p.cred},
	}
	for _, f := range files {
		attr.Files = append(attr.Files, uintptr(f))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	pid, err := syscall.ForkExec(p.path, p.argv, attr)
	if err != nil {
		return nil, startError(p, err)
	}
	ch := &child{pid: pid, done: make(chan struct{})}
	c.live[pid] = ch
	return ch, nil
}

// signal sends sig to a child's group, or to group when that is not 0.
func (c *children) signal(ch *child, group int, sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch.exited() != nil {
		return errs.New(errs.FailedPrecondition, "the program has ended; there is nothing to signal")
	}
	if group == 0 {
		group = ch.pid
	}
	return c.os.Signal(-group, sig)
}

// reapLoop waits for ended processes until ctx ends.
func (c *children) reapLoop(ctx context.Context) error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	for {
		c.reap()
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
		}
	}
}

func (c *children) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all {
		for c.reapOne(-1) {
		}
		return
	}
	for pid := range c.live {
		c.reapOne(pid)
	}
}

func (c *children) reapOne(pid int) bool {
	var ws syscall.WaitStatus
	got, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, nil)
	if err == syscall.EINTR {
		return true
	}
	if err != nil || got <= 0 {
		return false
	}
	if ch := c.live[got]; ch != nil {
		ch.status = exitStatus(ws)
		delete(c.live, got)
		close(ch.done)
	}
	return true
}

func exitStatus(ws syscall.WaitStatus) proto.ExitStatus {
	if !ws.Signaled() {
		return proto.ExitStatus{Code: ws.ExitStatus()}
	}
	name := unix.SignalName(ws.Signal())
	if name == "" {
		name = ws.Signal().String() // real-time signals have no name
	}
	return proto.ExitStatus{Code: 128 + int(ws.Signal()), Signal: name}
}
