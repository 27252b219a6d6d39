//go:build linux

package pid1

import (
	"context"
	"encoding/json"
	"io"

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
	x.changed()
	return a, proto.AttachResult{PID: x.child.pid, Stdout: a.sent[0], Stderr: a.sent[1], Stdin: x.stdinN}, nil
}

func (x *exec) detach(a *attachment) {
	x.mu.Lock()
	defer x.mu.Unlock()
	a.gone = true
	if x.attached == a {
		x.attached = nil
	}
	x.changed()
}

// step is what an attachment has to do next.
type step struct {
	frame proto.Frame
	send  bool
	last  bool
	wait  <-chan struct{}
}

// next picks the next frame for a into buf, taking turns between the streams.
func (x *exec) next(a *attachment, turn int, buf []byte) step {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a.gone {
		return step{last: true}
	}
	if x.attached != a {
		return step{frame: proto.Frame{Kind: proto.KindDisplaced}, send: true, last: true}
	}
	for k := range 2 {
		i := (turn + k) % 2
		r := &x.out[i]
		a.sent[i] = max(a.sent[i], r.start)
		if n := copy(buf, r.at(a.sent[i])); n > 0 {
			f := proto.Frame{Kind: proto.KindStdout + proto.Kind(i), Offset: a.sent[i], Data: buf[:n]}
			a.sent[i] += uint64(n)
			return step{frame: f, send: true}
		}
	}
	if x.finished {
		status, _ := json.Marshal(x.child.status) // two plain fields
		return step{frame: proto.Frame{Kind: proto.KindExit, Data: status}, send: true, last: true}
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
				return nil //nolint:nilerr // the host is gone or talks nonsense: both end the attachment
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

func (s *Server) sendOutput(ctx context.Context, st io.Writer, x *exec, a *attachment) {
	data := make([]byte, proto.MaxFrame/2)
	var wire []byte
	for turn := 0; ; turn++ {
		todo := x.next(a, turn, data)
		if todo.send {
			if s.gate.pass(ctx) != nil {
				return
			}
			wire = proto.AppendFrame(wire[:0], todo.frame)
			if _, err := st.Write(wire); err != nil {
				return
			}
		}
		if todo.last {
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

func (x *exec) acknowledge(a *attachment, i int, offset uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.attached == a && offset > x.out[i].acked {
		x.out[i].ack(offset)
		x.changed()
	}
}
