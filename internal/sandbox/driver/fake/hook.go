package fake

import (
	"context"
	"sync"

	"brood/internal/base/id"
)

// Op is an operation of a driver that a hook can be put on.
type Op string

// The operations.
const (
	OpStart   Op = "start"
	OpRestore Op = "restore"
	OpCapture Op = "capture"
	OpChannel Op = "channel"
	OpDestroy Op = "destroy"
	OpList    Op = "list"
)

// Call is what a hook is told.
type Call struct {
	Op      Op
	Sandbox id.Sandbox // empty for OpList
	N       int        // how many calls of Op there were, this one included
}

// Hook decides what becomes of a call: an error is its result. It may wait;
// ctx is the call's own and also ends when the sandbox is destroyed.
type Hook func(ctx context.Context, c Call) error

// Hooks are the hooks of one place by operation.
type Hooks map[Op]Hook

// hooked counts calls and runs hooks.
type hooked struct {
	mu    sync.Mutex // guards what follows; never held over a hook
	hooks map[Stage]Hooks
	calls map[Op]int
}

// Stage is when in an operation a hook runs.
type Stage int

// The stages.
const (
	Before Stage = iota // nothing is done yet
	Half                // Start and Restore: List shows it as half made; Capture: files are cut short
	After               // all is done, and is taken back when the hook fails
)

func (h *hooked) set(s Stage, op Op, f Hook) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hooks == nil {
		h.hooks = map[Stage]Hooks{}
	}
	if h.hooks[s] == nil {
		h.hooks[s] = Hooks{}
	}
	h.hooks[s][op] = f
}

// call counts a call.
func (h *hooked) call(op Op, sb id.Sandbox) Call {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls == nil {
		h.calls = map[Op]int{}
	}
	h.calls[op]++
	return Call{Op: op, Sandbox: sb, N: h.calls[op]}
}

// run runs the hook of a stage, if there is one.
func (h *hooked) run(ctx context.Context, s Stage, c Call) error {
	h.mu.Lock()
	f := h.hooks[s][c.Op]
	h.mu.Unlock()
	if f == nil {
		return ctx.Err()
	}
	if err := f(ctx, c); err != nil {
		return err
	}
	return ctx.Err()
}
