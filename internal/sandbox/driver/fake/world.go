package fake

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox"
)

// DefaultRuntime is the runtime of a World that is not told another: 64 hex
// digits, like a real one.
const DefaultRuntime id.Runtime = "fa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4e"

// World is a machine with sandboxes. It outlives Drivers.
type World struct {
	runtime id.Runtime
	hooked  hooked

	mu    sync.Mutex // guards boxes; a machine's lock may be taken under it
	boxes map[id.Sandbox]*box

	known    sync.Mutex // guards programs; may be taken under a machine's lock
	programs map[string]func() Program
}

// NewWorld returns an empty world. Close it.
func NewWorld() *World {
	return &World{runtime: DefaultRuntime, boxes: map[id.Sandbox]*box{}, programs: builtin()}
}

// Driver returns a driver of this world, as a daemon has one. Any number may
// be in use.
func (w *World) Driver() *Driver { return &Driver{w: w} }

// Program makes a program known: commands whose first word ends in name run
// it. A later one replaces an earlier one, also in captures that are restored
// afterwards.
func (w *World) Program(name string, fresh func() Program) {
	w.known.Lock()
	defer w.known.Unlock()
	w.programs[name] = fresh
}

// Hook puts f on an operation; nil takes it off.
func (w *World) Hook(s Stage, op Op, f Hook) { w.hooked.set(s, op, f) }

// Fail lets an operation fail for the sandboxes that f returns an error for,
// after it has begun.
func (w *World) Fail(op Op, f func(id.Sandbox) error) {
	w.Hook(Half, op, func(_ context.Context, c Call) error { return f(c.Sandbox) })
}

// Truncate makes captures of the sandboxes that f names succeed with files
// that are cut short, as on a full disk. Nil ends that.
func (w *World) Truncate(f func(id.Sandbox) bool) {
	w.Hook(Half, OpCapture, func(_ context.Context, c Call) error {
		if f != nil && f(c.Sandbox) {
			return errCut
		}
		return nil
	})
}

// errCut is how a hook tells a capture to cut its files and succeed.
var errCut = errors.New("cut short")

// Kill ends a sandbox as if its processes were killed from outside.
func (w *World) Kill(sb id.Sandbox) {
	if m, err := w.machine(sb); err == nil {
		m.end()
	}
}

// HalfMake leaves a sandbox as a daemon does that dies in the middle of Start.
func (w *World) HalfMake(sb id.Sandbox) error {
	b, err := w.reserve(sb)
	if err == nil {
		b.settle()
	}
	return err
}

// Close ends every sandbox and waits until nothing runs.
func (w *World) Close() error {
	w.mu.Lock()
	var all []*box
	for _, b := range w.boxes {
		all = append(all, b)
	}
	w.mu.Unlock()
	var failed error
	for _, b := range all {
		failed = errors.Join(failed, w.destroy(context.Background(), b))
	}
	return failed
}

// box is a place for a sandbox: taken before it is made.
type box struct {
	id      id.Sandbox
	ctx     context.Context //nolint:containedctx // ends with Destroy, which the making of it must notice
	cancel  context.CancelFunc
	settled chan struct{} // closed when nobody is making it any more
	once    sync.Once
	machine *machine      // guarded by World.mu; nil while half made
	over    chan struct{} // closed when it has ended
	ending  sync.Once
}

func (b *box) settle() { b.once.Do(func() { close(b.settled) }) }
func (b *box) end()    { b.ending.Do(func() { close(b.over) }) }

// reserve takes the place of a new sandbox.
func (w *World) reserve(sb id.Sandbox) (*box, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, taken := w.boxes[sb]; taken {
		return nil, errs.New(errs.AlreadyExists, "sandbox %s exists", sb)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &box{id: sb, ctx: ctx, cancel: cancel, settled: make(chan struct{}), over: make(chan struct{})}
	w.boxes[sb] = b
	return b, nil
}

// put makes a half made sandbox a running one.
func (w *World) put(b *box, m *machine) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.boxes[b.id] != b || b.ctx.Err() != nil {
		return errs.New(errs.NotFound, "sandbox %s was destroyed while it was made", b.id)
	}
	b.machine = m
	return nil
}

// destroy ends a sandbox, waits until nothing of it runs and frees its place.
func (w *World) destroy(ctx context.Context, b *box) error {
	b.cancel()
	select {
	case <-b.settled:
	case <-ctx.Done():
		return ctx.Err()
	}
	w.mu.Lock()
	m := b.machine
	w.mu.Unlock()
	var err error
	if m != nil {
		err = m.close()
	}
	w.mu.Lock()
	if w.boxes[b.id] == b {
		delete(w.boxes, b.id)
	}
	w.mu.Unlock()
	b.end()
	return err
}

func (w *World) box(sb id.Sandbox) (*box, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b, ok := w.boxes[sb]; ok {
		return b, nil
	}
	return nil, errs.New(errs.NotFound, "no sandbox %s is here", sb)
}

// machine returns a sandbox that runs.
func (w *World) machine(sb id.Sandbox) (*machine, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, ok := w.boxes[sb]
	if !ok || b.machine == nil || b.machine.over() {
		return nil, errs.New(errs.NotFound, "sandbox %s does not run", sb)
	}
	return b.machine, nil
}

// list returns every sandbox of which something exists, by id.
func (w *World) list() []sandbox.Live {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]sandbox.Live, 0, len(w.boxes))
	for _, b := range w.boxes {
		all = append(all, sandbox.Live{ID: b.id, Running: b.machine != nil && !b.machine.over()})
	}
	slices.SortFunc(all, func(a, b sandbox.Live) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return all
}

// program returns a fresh program by a command's first word.
func (w *World) program(argv0 string) (string, Program, error) {
	name := argv0[strings.LastIndexByte(argv0, '/')+1:]
	w.known.Lock()
	fresh := w.programs[name]
	w.known.Unlock()
	if fresh == nil {
		return "", nil, errs.With(errs.New(errs.NotFound, "%s: command not found in the sandbox", argv0), "exit_code", "127")
	}
	return name, fresh(), nil
}
