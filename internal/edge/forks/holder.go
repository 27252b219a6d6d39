package forks

import (
	"context"
	"fmt"
	"time"

	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/home"
)

// holder is a daemon that has the home and does not answer: it takes over the
// sandboxes before it does, or it cannot be reached.
type holder struct {
	app   *app
	home  *home.Home
	since time.Time // when it was found
	told  bool
}

// wait waits before the next look at it, and says so when that becomes long. It
// is an error when a daemon that was ready does not answer for longer than it
// needs to put back what leads to it.
func (w *holder) wait(ctx context.Context) error {
	if w.since.IsZero() {
		w.since = time.Now()
	}
	waited := time.Since(w.since)
	_, state := w.home.Signature("daemon")
	if waited > heldLimit && state == home.Ready {
		return unanswered(w.home, heldLimit)
	}
	if waited > heldNotice && !w.told {
		w.told = true
		w.app.Say("%s has %s that does not answer yet: waiting for it (log: %s)", w.home.Dir(), named(w.home), logFile(w.home))
	}
	return pause(ctx, heldPause)
}

// named is the daemon that has a home, with its pid when it is known.
func named(h *home.Home) string {
	pid, state := h.Signature("daemon")
	if pid == 0 {
		return "a daemon"
	}
	return fmt.Sprintf("a daemon (pid %d, %s)", pid, state)
}

// unanswered is the error of a wait for a daemon that there is, or was started.
func unanswered(h *home.Home, waited time.Duration) error {
	held, err := h.Held("daemon")
	if err != nil || !held {
		return errs.New(errs.Unavailable, "no daemon of %s answered within %s: %s", h.Dir(), waited, tail(logFile(h), 0))
	}
	advice := "end it, sandboxes run on"
	if pid, _ := h.Signature("daemon"); pid != 0 {
		advice = fmt.Sprintf("end it with \"kill %d\", sandboxes run on", pid)
	}
	return errs.New(errs.Unavailable, "%s has %s that did not answer within %s: %s, and try again: %s", h.Dir(), named(h), waited, advice, tail(logFile(h), 0))
}

// reachHolder reaches the daemon that has the home, which may have lost what
// leads to it and put it back soon; nil when there is none.
func (a *app) reachHolder(ctx context.Context, p patience) (*client.Client, error) {
	h, err := a.Dir()
	if err != nil {
		return nil, err
	}
	w := holder{app: a, home: h}
	limited, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		c, err := a.reachIn(limited, p)
		if !absent(err) {
			return c, err
		}
		held, err := h.Held("daemon")
		if err != nil || !held {
			return nil, err
		}
		err = w.wait(limited)
		if limited.Err() != nil && ctx.Err() == nil {
			return nil, unanswered(h, startLimit)
		}
		if err != nil {
			return nil, err
		}
	}
}
