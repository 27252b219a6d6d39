//go:build linux

package pid1

import (
	"context"
	"os"
	"sync"
	"time"

	"brood/internal/sandbox/guest/proto"
)

// unattachedPatience is how long a program with a full output buffer, one that
// is not hung up when nobody is attached, waits for a host. After that its
// oldest output is dropped: long enough for a daemon to start again, short
// enough that what nobody reads does not hold a program for ever.
const unattachedPatience = 60 * time.Second

// exec is a program started beside the main command. It outlives the streams
// and sessions that look at it, until it is forgotten.
type exec struct {
	id    string
	argv  []string
	began time.Time
	child *child
	tty   *os.File // the terminal's server side, or nil
	pumps []*pump
	keep  bool // nobody need be attached: it was started to be left alone

	input     chan struct{} // a semaphore: one write to stdin at a time
	mu        sync.Mutex    // guards what follows; never held over a wait
	change    chan struct{} // closed and replaced when anything below changes
	out       [2]ring
	stdin     *os.File // nil: none, or closed
	stdinN    uint64
	attached  *attachment
	left      time.Time     // since when nobody is attached
	looks     chan struct{} // closed and replaced when attached, discard or finished changes
	impatient bool          // nobody ever was attached, unattachedPatience has passed, or it was hung up
	discard   bool          // nobody will ever read: drop all output
	finished  bool          // the program ended and all it wrote is in the buffers
}

// attachment is one stream that looks at an exec.
type attachment struct {
	sent [2]uint64
	gone bool
}

func (x *exec) changed() {
	close(x.change)
	x.change = make(chan struct{})
}

// info describes the exec.
func (x *exec) info() proto.ExecInfo {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := proto.ExecInfo{
		ID: x.id, PID: x.child.pid, Argv: x.argv, TTY: x.tty != nil, Attached: x.attached != nil,
		Began: x.began.UnixNano(), Stdin: x.stdinN, Stdout: x.out[0].end, Stderr: x.out[1].end,
	}
	if x.finished {
		i.Exit = x.child.exited()
	}
	return i
}

// idle reports whether the exec is over and nobody looks at it.
func (x *exec) idle() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.finished && x.attached == nil
}

// watch follows the program to its end: what it has written by then is moved
// into the buffers, waiting for room, and the exec is finished. Descendants
// that hold its output go on; theirs is discarded.
func (x *exec) watch(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-x.child.done:
	}
	for _, p := range x.pumps {
		for p.now() == full {
			if p.sink.wait(ctx) != nil {
				return
			}
		}
	}
	x.mu.Lock()
	x.finished = true
	stdin := x.takeStdin()
	x.looked()
	x.mu.Unlock()
	closeQuietly(stdin)
	if x.tty != nil {
		// Hang up, as when a terminal's window is closed.
		closeQuietly(x.tty)
	}
}

// release cuts the exec off from its host for good: in a fork, it was the
// source's. The program goes on, its output is dropped and its input ends; a
// terminal stays open, silent, because closing it would kill the session.
func (x *exec) release() {
	x.mu.Lock()
	x.discard = true
	x.attached = nil
	x.out = [2]ring{{start: x.out[0].end, end: x.out[0].end, acked: x.out[0].end}, {start: x.out[1].end, end: x.out[1].end, acked: x.out[1].end}}
	stdin := x.takeStdin()
	x.looked()
	x.mu.Unlock()
	closeQuietly(stdin)
}

// takeStdin returns the pipe to be closed, if there is one. x.mu is held.
func (x *exec) takeStdin() *os.File {
	f := x.stdin
	x.stdin = nil
	if f == x.tty {
		return nil
	}
	return f
}

// closeQuietly closes a pipe or terminal, which buffers nothing.
func closeQuietly(f *os.File) {
	if f != nil {
		_ = f.Close()
	}
}

// execSink is one of an exec's buffers as a pump's sink.
type execSink struct {
	x *exec
	i int
}

func (s execSink) room() int {
	s.x.mu.Lock()
	defer s.x.mu.Unlock()
	if s.x.dropping() {
		return pumpBuffer
	}
	return s.x.out[s.i].room()
}

// dropping reports whether output is not waited for. x.mu is held.
func (x *exec) dropping() bool {
	return x.discard || x.finished || (x.impatient && x.attached == nil)
}

func (s execSink) put(p []byte) {
	s.x.mu.Lock()
	defer s.x.mu.Unlock()
	if s.x.discard || s.x.finished {
		return
	}
	s.x.out[s.i].put(p)
	s.x.changed()
}

// wait returns when there may be room, at the latest when patience ends.
func (s execSink) wait(ctx context.Context) error {
	s.x.mu.Lock()
	change := s.x.change
	var patience <-chan time.Time
	if s.x.attached == nil && s.x.keep {
		timer := time.NewTimer(unattachedPatience)
		defer timer.Stop()
		patience = timer.C
	}
	s.x.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-change:
	case <-patience:
		s.x.mu.Lock()
		s.x.impatient = s.x.attached == nil
		s.x.mu.Unlock()
	}
	return nil
}
