package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	broodv1 "brood/api/brood/v1"
	"brood/internal/base/errs"
	"brood/internal/base/life"
)

const (
	// stdinChunk is how much input is sent at once at most: as much as the daemon
	// takes. What is there is sent at once, be it one key.
	stdinChunk = 1 << 20
	// stdinRead is how much is read at once: what a pipe holds.
	stdinRead = 64 << 10
)

// pump sends a reader to a command's input. It reads on while it sends.
type pump struct {
	in     io.Reader
	group  *life.Group
	cancel context.CancelFunc

	done chan struct{} // nobody reads any more
	sent chan struct{} // nor sends

	mu      sync.Mutex // guards what follows
	reading bool
	read    []byte // and not taken yet
	end     error  // of the reader
	more    chan struct{}
	room    chan struct{}
}

// pump starts sending; a nil reader sends nothing.
func (e *Execution) pump(ctx context.Context, in io.Reader) *pump {
	if in == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &pump{in: in, group: life.NewGroup(ctx), cancel: cancel, done: make(chan struct{}), sent: make(chan struct{}), more: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	p.group.Go("read input", func(ctx context.Context) error {
		defer close(p.done)
		p.fill(ctx)
		return nil
	})
	p.group.Go("send input", func(ctx context.Context) error {
		defer close(p.sent)
		return p.send(ctx, e)
	})
	return p
}

// stop ends the sending once the command has ended. It waits, except for a
// Read that cannot be interrupted: nobody may ever type again.
func (p *pump) stop() error {
	if p == nil {
		return nil
	}
	p.cancel()
	if d, ok := p.in.(interface{ SetReadDeadline(time.Time) error }); ok && d.SetReadDeadline(time.Unix(1, 0)) == nil {
		err := p.group.Stop()
		return errors.Join(err, d.SetReadDeadline(time.Time{}))
	}
	<-p.sent
	p.mu.Lock()
	reading := p.reading
	p.mu.Unlock()
	if reading {
		select {
		case <-p.done:
		default:
			return nil
		}
	}
	return p.group.Stop()
}

func (p *pump) send(ctx context.Context, e *Execution) error {
	if e.attached { // others may have written before
		if err := e.writeStdin(ctx, nil); err != nil {
			return unwanted(ctx, err)
		}
	}
	var spare []byte
	for {
		data, end := p.take(ctx, spare)
		if len(data) == 0 && end == nil {
			return nil // the command has ended, or its caller has gone
		}
		spare = data
		if len(data) > 0 {
			if err := e.writeStdin(ctx, data); err != nil {
				return unwanted(ctx, err)
			}
			continue
		}
		_, err := unary(ctx, e.client.execs.CloseStdin, &broodv1.CloseStdinRequest{Sandbox: e.sandbox, ExecId: e.id})
		if errors.Is(end, io.EOF) {
			return unwanted(ctx, err)
		}
		return errors.Join(end, unwanted(ctx, err))
	}
}

// fill reads to the end, waiting while a chunk is there that nobody took.
func (p *pump) fill(ctx context.Context) {
	buf := make([]byte, stdinRead)
	for {
		p.mu.Lock()
		for len(p.read)+len(buf) > stdinChunk && ctx.Err() == nil {
			p.mu.Unlock()
			select {
			case <-p.room:
			case <-ctx.Done():
			}
			p.mu.Lock()
		}
		if ctx.Err() != nil { // stop sees that a Read is under way, or none begins
			p.mu.Unlock()
			return
		}
		p.reading = true
		p.mu.Unlock()
		n, err := p.in.Read(buf)
		p.mu.Lock()
		p.reading = false
		p.read, p.end = append(p.read, buf[:n]...), err
		p.mu.Unlock()
		wake(p.more)
		if err != nil {
			return
		}
	}
}

// take returns what was read, waiting for it; nothing and end are its end,
// nothing and no end that of ctx. The next is put into spare.
func (p *pump) take(ctx context.Context, spare []byte) (data []byte, end error) {
	for ctx.Err() == nil {
		p.mu.Lock()
		data, end = p.read, p.end
		if len(data) > 0 {
			p.read = spare[:0]
		}
		p.mu.Unlock()
		if len(data) > 0 || end != nil {
			wake(p.room)
			return data, end
		}
		select {
		case <-p.more:
		case <-ctx.Done():
		}
	}
	return nil, nil
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// writeStdin sends data, again when the connection is lost: the offset makes
// that safe. Sending nothing learns the offset.
func (e *Execution) writeStdin(ctx context.Context, data []byte) error {
	wait := e.client.patiently()
	for {
		r, err := unary(ctx, e.client.execs.WriteStdin, &broodv1.WriteStdinRequest{Sandbox: e.sandbox, ExecId: e.id, Offset: e.written, Data: data})
		if err == nil {
			took := min(r.GetNextOffset()-e.written, uint64(len(data)))
			e.written = r.GetNextOffset()
			if data = data[took:]; len(data) == 0 {
				return nil
			}
			if took > 0 {
				wait = e.client.patiently()
				continue
			}
			err = errs.New(errs.Unavailable, "the daemon takes no input for the command")
		} else if ctx.Err() != nil || !lost(err) {
			return err
		}
		if err := wait.pause(ctx, err); err != nil {
			return err
		}
	}
}

// unwanted drops errors that say only that the command reads no more: it has
// ended, closed its input, or is no longer watched.
func unwanted(ctx context.Context, err error) error {
	if ctx.Err() == nil && !errs.Is(err, errs.FailedPrecondition) && !errs.Is(err, errs.NotFound) {
		return err
	}
	return nil
}
