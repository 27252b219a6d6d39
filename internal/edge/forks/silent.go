package forks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/home"
)

const (
	// answerNotice is after how long of no answer a caller is told that the
	// daemon does not answer. One that lives answers in milliseconds.
	answerNotice = 2 * time.Second
	// answerLimit is when a caller gives up. It bounds the first question only:
	// what is under way may take as long as it likes.
	answerLimit = 30 * time.Second
	// stopPatience is answerLimit for who wants it ended anyway.
	stopPatience = 5 * time.Second
)

// silent is the error of a daemon that takes connections and does not answer:
// it was stopped, or its machine hangs. It is there, so that none is started.
type silent struct{ error }

func (s *silent) Unwrap() error { return s.error }

func isSilent(err error) bool {
	var s *silent
	return errors.As(err, &s)
}

// patience is how long to wait for the first answer.
type patience struct{ notice, limit time.Duration }

// reachIn reaches the daemon that there is, or gives it up when it stays
// silent.
func (a *app) reachIn(ctx context.Context, p patience) (*client.Client, error) {
	h, err := a.Dir()
	if err != nil {
		return nil, err
	}
	c, err := ask(ctx, h, p.notice)
	if !isSilent(err) {
		return c, err
	}
	a.Say("%s does not answer: waiting for it", theDaemon(h))
	c, err = ask(ctx, h, p.limit-p.notice)
	if isSilent(err) {
		err = &silent{errs.New(errs.Unavailable, "%s did not answer within %s: %s", theDaemon(h), p.limit, advice(h))}
	}
	return c, err
}

// ask dials the daemon; silent when it does not answer in time.
func ask(ctx context.Context, h *home.Home, limit time.Duration) (*client.Client, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := client.Dial(limited, client.Options{Home: h.Dir()})
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = &silent{err}
	}
	return c, err
}

// theDaemon names the one that has a home, and whether somebody stopped it.
func theDaemon(h *home.Home) string {
	pid, _ := h.Signature("daemon")
	switch {
	case pid == 0:
		return fmt.Sprintf("the daemon of %s", h.Dir())
	case halted(pid):
		return fmt.Sprintf("the daemon of %s (pid %d, which somebody stopped)", h.Dir(), pid)
	}
	return fmt.Sprintf("the daemon of %s (pid %d)", h.Dir(), pid)
}

// advice is what to do about it.
func advice(h *home.Home) string {
	text := `"brood daemon restart" ends it and starts another; sandboxes run on`
	if pid, _ := h.Signature("daemon"); pid != 0 {
		text += fmt.Sprintf(`. By hand: "kill -CONT %d" when it was stopped, "kill -9 %d" to end it`, pid, pid)
	}
	return text
}

// halted reports whether a process was stopped by a signal or a debugger; where
// there is no /proc nobody knows.
func halted(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, ok := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
	return ok && (strings.HasPrefix(after, "T") || strings.HasPrefix(after, "t"))
}

// end ends a daemon that is silent, with signals: the first lets it end as it
// would by itself, also when it was stopped. It returns its pid.
func (a *app) end(ctx context.Context, h *home.Home) (uint32, error) {
	pid, _ := h.Signature("daemon")
	// The number in the lock may be one of another container's processes.
	if peer := peerOf(ctx, h); pid == 0 || peer != pid {
		return 0, errs.New(errs.Unavailable, "%s does not answer, and it cannot be told which process it is: end it where it was started; sandboxes run on", theDaemon(h))
	}
	a.Say("%s does not answer: it is ended with a signal", theDaemon(h))
	var failed error
	for _, signals := range [][]syscall.Signal{{syscall.SIGTERM, syscall.SIGCONT}, {syscall.SIGKILL}} {
		for _, s := range signals {
			if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
				return 0, errs.New(errs.PermissionDenied, "end the daemon (pid %d): %w", pid, err)
			}
		}
		limited, cancel := context.WithTimeout(ctx, heldLimit)
		failed = awaitUnlocked(limited, h, pid)
		cancel()
		if failed == nil || ctx.Err() != nil {
			break
		}
	}
	return uint32(pid), failed
}
