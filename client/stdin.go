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

// stdinChunk is how much input is sent at once: large enough for files, small
// enough for a terminal to feel direct.
const stdinChunk = 64 << 10

// pump sends a reader to a command's input.
type pump struct {
	in     io.Reader
	group  *life.Group
	cancel context.CancelFunc

	done chan struct{}

	mu      sync.Mutex // guards reading
	reading bool
}

// pump starts sending; a nil reader sends nothing.
func (e *Execution) pump(ctx context.Context, in io.Reader) *pump {
	if in == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &pump{in: in, group: life.NewGroup(ctx), cancel: cancel, done: make(chan struct{})}
	p.group.Go("input", func(ctx context.Context) error {
		defer close(p.done)
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
	buf := make([]byte, stdinChunk)
	for ctx.Err() == nil { // until the command has ended, or its caller has gone
		n, readErr := p.read(ctx, buf)
		if ctx.Err() != nil {
			continue
		}
		if n > 0 {
			if err := e.writeStdin(ctx, buf[:n]); err != nil {
				return unwanted(ctx, err)
			}
		}
		if readErr == nil {
			continue
		}
		_, err := unary(ctx, e.client.execs.CloseStdin, &broodv1.CloseStdinRequest{Sandbox: e.sandbox, ExecId: e.id})
		if errors.Is(readErr, io.EOF) {
			return unwanted(ctx, err)
		}
		return errors.Join(readErr, unwanted(ctx, err))
	}
	return nil
}

// read reads unless the sending was stopped: stop either sees that a Read is
// under way, or none begins any more.
func (p *pump) read(ctx context.Context, buf []byte) (int, error) {
	p.mu.Lock()
	if ctx.Err() != nil {
		p.mu.Unlock()
		return 0, ctx.Err()
	}
	p.reading = true
	p.mu.Unlock()
	n, err := p.in.Read(buf)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reading = false
	return n, err
}

// writeStdin sends data, again when the connection is lost: the offset makes
// that safe. Sending nothing learns the offset.
func (e *Execution) writeStdin(ctx context.Context, data []byte) error {
	wait := patience{limit: e.client.patience}
	for {
		r, err := unary(ctx, e.client.execs.WriteStdin, &broodv1.WriteStdinRequest{Sandbox: e.sandbox, ExecId: e.id, Offset: e.written, Data: data})
		if err == nil {
			took := min(r.GetNextOffset()-e.written, uint64(len(data)))
			e.written = r.GetNextOffset()
			if data = data[took:]; len(data) == 0 {
				return nil
			}
			if took > 0 {
				wait = patience{limit: e.client.patience}
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
