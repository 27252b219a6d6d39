//go:build linux

package pid1

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/sandbox/guest/proto"
)

// attach makes a stream the one that looks at x, in the place of another.
func (x *exec) attach(from [2]uint64) (*attachment, proto.AttachResult, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := &attachment{}
	for i := range x.out {
		r := &x.out[i]
		if from[i] > r.end {
			return nil, proto.AttachResult{}, errs.New(errs.InvalidArgument,
				"exec %s has written %d bytes so far; output from %d on was asked for", x.id, r.end, from[i])
		}
		a.sent[i] = max(from[i], r.start)
		r.ack(from[i])
	}
	x.attached = a
	x.impatient = false
	x.looked()
	return a, proto.AttachResult{PID: x.child.pid, Stdout: a.sent[0], Stderr: a.sent[1], Stdin: x.stdinN}, nil
}

func (x *exec) detach(a *attachment) {
	x.mu.Lock()
	defer x.mu.Unlock()
	a.gone = true
	if x.attached == a {
		x.attached, x.left = nil, time.Now()
	}
	x.looked()
}

// step is what an attachment has to do next: send wire unless it is empty,
// then end or wait if it says so.
type step struct {
	wire []byte
	last bool
	wait <-chan struct{}
}

// next appends the next frame for a to buf, taking turns between the streams.
func (x *exec) next(a *attachment, turn int, buf []byte) step {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a.gone {
		return step{last: true}
	}
	if x.attached != a {
		return step{wire: proto.AppendFrame(buf, proto.Frame{Kind: proto.KindDisplaced}), last: true}
	}
	for k := range 2 {
		i := (turn + k) % 2
		r := &x.out[i]
		a.sent[i] = max(a.sent[i], r.start)
		data := r.at(a.sent[i])
		if data = data[:min(len(data), proto.MaxFrame)]; len(data) > 0 {
			f := proto.Frame{Kind: proto.KindStdout + proto.Kind(i), Offset: a.sent[i], Data: data}
			a.sent[i] += uint64(len(data))
			return step{wire: proto.AppendFrame(buf, f)}
		}
	}
	if x.finished {
		status, _ := json.Marshal(x.child.status) // two plain fields
		return step{wire: proto.AppendFrame(buf, proto.Frame{Kind: proto.KindExit, Data: status}), last: true}
	}
	return step{wait: x.change}
}

// serve sends output to a stream until the program has ended and all is sent,
// the host goes, or another stream takes over.
func (s *Server) serveAttachment(ctx context.Context, st io.ReadWriteCloser, x *exec, a *attachment) {
	g := life.NewGroup(ctx)
	g.Go("acks", func(context.Context) error {
		defer x.detach(a)
		for {
			f, err := proto.ReadFrame(st)
			if err != nil {
				return nil // the host is gone or talks nonsense: both end the attachment
			}
			if f.Kind == proto.KindStdout || f.Kind == proto.KindStderr {
				x.acknowledge(a, int(f.Kind-proto.KindStdout), f.Offset)
			}
		}
	})
	s.sendOutput(g.Context(), st, x, a)
	_ = st.Close() // our direction only; the host's ends when it has read all
	_ = g.Wait()   // the acks' goroutine has no error
}

// frameBuffers are shared, because most attachments have nothing to send most
// of the time.
var frameBuffers = sync.Pool{New: func() any { return new([proto.FrameSize]byte) }}

func (s *Server) sendOutput(ctx context.Context, st io.Writer, x *exec, a *attachment) {
	for turn := 0; ; turn++ {
		buf := frameBuffers.Get().(*[proto.FrameSize]byte)
		todo := x.next(a, turn, buf[:0])
		err := s.sendFrame(ctx, st, todo.wire)
		frameBuffers.Put(buf)
		if err != nil || todo.last {
			return
		}
		if todo.wait == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-todo.wait:
		}
	}
}

// sendFrame sends a frame when user processes are not frozen.
func (s *Server) sendFrame(ctx context.Context, st io.Writer, wire []byte) error {
	if len(wire) == 0 {
		return nil
	}
	if err := s.gate.pass(ctx); err != nil {
		return err
	}
	_, err := st.Write(wire)
	return err
}

func (x *exec) acknowledge(a *attachment, i int, offset uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.attached == a && offset > x.out[i].acked {
		x.out[i].ack(offset)
		x.changed()
	}
}
