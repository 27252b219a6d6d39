package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox"
	"brood/internal/sandbox/guest"
	"brood/internal/sandbox/guest/proto"
)

// watch notices how a sandbox ends: its command, or all of it.
func (h *Host) watch(e *entry) {
	ctx, stop := context.WithCancel(h.group.Context())
	e.mu.Lock()
	e.stop = stop
	g := e.guest
	sb := e.rec.Sandbox
	e.mu.Unlock()
	h.group.Go("watch", func(context.Context) error {
		defer stop()
		h.awaitEnd(ctx, e, sb.ID)
		return nil
	})
	if len(sb.Command.Argv) == 0 || sb.State == sandbox.Stopped {
		return
	}
	h.group.Go("watch the command", func(context.Context) error {
		h.awaitCommand(ctx, e, g)
		return nil
	})
}

// awaitEnd waits for the end of the processes. The host's own Destroy stops
// the watch first, so that an end seen here came by itself.
func (h *Host) awaitEnd(ctx context.Context, e *entry, sb id.Sandbox) {
	for {
		err := h.p.Driver.Wait(ctx, sb)
		if ctx.Err() != nil {
			return
		}
		if err == nil || errs.Is(err, errs.NotFound) {
			break
		}
		h.p.Log.Warn("watch a sandbox", "sandbox", sb, "error", err)
		if !sleep(ctx, time.Second) {
			return
		}
	}
	e.mu.Lock()
	state := e.rec.State
	e.mu.Unlock()
	if state == sandbox.Running || state == sandbox.Stopped {
		h.logged(h.fail(e, "its processes were killed from outside"))
	}
}

func (h *Host) awaitCommand(ctx context.Context, e *entry, g *guest.Client) {
	exit, err := g.WaitMain(ctx)
	if err != nil || ctx.Err() != nil {
		return // awaitEnd says what became of it
	}
	release, err := e.hold(ctx)
	if err != nil {
		return
	}
	defer release()
	if e.view().State != sandbox.Running {
		return
	}
	h.logged(g.End(ctx)) // a stopped sandbox runs nothing
	e.change(func(sb *Sandbox) {
		code := exit.Code
		sb.State, sb.ExitCode, sb.Reason = sandbox.Stopped, &code, ended(exit)
	})
	h.logged(h.save(e))
}

func ended(exit proto.ExitStatus) string {
	if exit.Signal != "" {
		return "its command was ended by " + exit.Signal
	}
	return fmt.Sprintf("its command ended with status %d", exit.Code)
}

func (h *Host) logged(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		h.p.Log.Error("look after a sandbox", "error", err)
	}
}

// expirePeriod is how often time limits are looked at: they are minutes, and
// an owner's death should not leave sandboxes for long.
const expirePeriod = time.Second

// expire removes what has outlived its time, its use or its owner, and what
// could not be removed when it was to go.
func (h *Host) expire(ctx context.Context) error {
	for sleep(ctx, expirePeriod) {
		due, idle := h.due(time.Now())
		for _, name := range idle {
			if !h.busy(ctx, name) {
				due = append(due, name)
			}
		}
		for _, name := range due {
			h.p.Log.Info("remove a sandbox whose time is over, or whose removal failed", "sandbox", name)
			if err := h.Delete(ctx, name); !errs.Is(err, errs.NotFound) {
				h.logged(err)
			}
		}
	}
	return nil
}

// busy says that something runs in a sandbox that was started with exec,
// though nobody watches it: then it is used.
func (h *Host) busy(ctx context.Context, name id.Name) bool {
	e, err := h.entry(name)
	if err != nil {
		return false
	}
	e.mu.Lock()
	g := e.guest
	e.mu.Unlock()
	if g == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, expirePeriod)
	defer cancel()
	all, err := g.ListExecs(ctx)
	if err != nil || !slices.ContainsFunc(all, func(x guest.ExecInfo) bool { return x.ID != proto.MainID && x.Exit == nil }) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.used = time.Now()
	return true
}

// due returns the sandboxes that have to go, and those that have if nothing
// works in them.
func (h *Host) due(now time.Time) (due, idle []id.Name) {
	h.mu.Lock()
	entries := make([]*entry, 0, len(h.names))
	for _, e := range h.names {
		entries = append(entries, e)
	}
	h.mu.Unlock()
	for _, e := range entries {
		e.mu.Lock()
		sb, used, users, stuck := e.rec.Sandbox, e.used, e.users, e.stuck
		e.mu.Unlock()
		settled := sb.State != sandbox.Provisioning && sb.State != sandbox.Deleting
		over := !sb.ExpiresAt.IsZero() && now.After(sb.ExpiresAt) ||
			sb.Owner != nil && !alive(*sb.Owner)
		again := !stuck.IsZero() && now.Sub(stuck) >= deleteAgain
		switch {
		case settled && over || again:
			due = append(due, sb.Name)
		case settled && sb.IdleTimeout > 0 && users == 0 && now.Sub(used) > sb.IdleTimeout:
			idle = append(idle, sb.Name)
		}
	}
	return due, idle
}

func alive(o Owner) bool {
	start, err := processStart(o.PID)
	return err == nil && start == o.Start
}

// sleep waits and says whether ctx still holds.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
