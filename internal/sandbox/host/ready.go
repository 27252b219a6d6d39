package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/sandbox"
	"brood/internal/sandbox/guest"
	"brood/internal/sandbox/guest/logs"
	"brood/internal/sandbox/guest/proto"
)

// Probe says when a sandbox is ready. Exactly one of Command and Port is set.
type Probe struct {
	Command []string // ready when it ends with status 0
	Port    uint32   // ready when something accepts there, or answers HTTP:
	Path    string   // not empty: GET of it answers
	Status  uint32   // with this status (0: any 2xx)
}

// DefaultReadyLimit is how long a sandbox may take to become ready, as in the
// protocol's WaitReady.
const DefaultReadyLimit = 300 * time.Second

// probePeriod is how long to wait between two tries of a probe.
const probePeriod = 100 * time.Millisecond

// WaitReady returns when every probe of a sandbox has succeeded once.
func (h *Host) WaitReady(ctx context.Context, name id.Name, probes []Probe, limit time.Duration) error {
	g, sb, err := h.Guest(name)
	if err != nil {
		return err
	}
	if limit <= 0 {
		limit = DefaultReadyLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ctx, release := h.whileItRuns(ctx, g, sb)
	defer release()
	for _, p := range probes {
		if err := h.await(ctx, name, p); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) awaitReady(ctx context.Context, e *entry, p CreateParams) error {
	if len(p.Probes) == 0 {
		return nil
	}
	p.Progress("waiting_for_services", "", 0, 0)
	err := h.WaitReady(ctx, e.view().Name, p.Probes, p.ReadyLimit)
	if err != nil && !p.KeepFailed && ctx.Err() == nil {
		err = fmt.Errorf("%w\nit is removed: to look at it, create it with --keep-on-failure", err)
	}
	return err
}

// whileItRuns returns a context that ends, with the reason as its cause, when
// the sandbox's command does: what it serves will not come any more.
func (h *Host) whileItRuns(ctx context.Context, g *guest.Client, sb Sandbox) (_ context.Context, release func()) {
	ctx, end := context.WithCancelCause(ctx)
	watch := life.NewGroup(ctx)
	if len(sb.Command.Argv) > 0 {
		watch.Go("the command's end", func(ctx context.Context) error {
			// When it cannot be asked, the probes find out why.
			if exit, err := g.WaitMain(ctx); err == nil {
				end(errs.New(errs.FailedPrecondition, "%s%s", ended(exit), h.lastWords(sb.ID)))
			}
			return nil
		})
	}
	return ctx, func() {
		end(nil)
		_ = watch.Wait() // it has no error
	}
}

const (
	lastLines = 10
	lastBytes = 2 << 10
)

// lastWords are the last lines that a sandbox's command wrote, for a message.
func (h *Host) lastWords(sb id.Sandbox) string {
	r, err := logs.Open(h.files(sb).logs())
	if err != nil {
		return ""
	}
	defer r.Close()
	if r.Tail(lastLines) != nil {
		return ""
	}
	var text []byte
	for {
		e, err := r.Next()
		if err != nil {
			break
		}
		text = append(text, e.Data...)
		text = text[max(0, len(text)-lastBytes):]
	}
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return " and wrote nothing"
	}
	return "; the last it wrote: " + string(text)
}

// await tries a probe until it succeeds or the sandbox is no longer there.
func (h *Host) await(ctx context.Context, name id.Name, p Probe) error {
	for {
		g, sb, err := h.Guest(name)
		if err != nil {
			return err
		}
		why := p.try(ctx, g)
		if why == nil {
			return nil
		}
		if sb.State != sandbox.Running {
			return errs.New(errs.FailedPrecondition, "sandbox %s is %s before it was ready%s", name, sb.State, because(sb.Reason))
		}
		if sleep(ctx, probePeriod) {
			continue
		}
		if over := context.Cause(ctx); !errs.Is(over, errs.DeadlineExceeded) {
			return fmt.Errorf("sandbox %s was not ready (%s): %w", name, p, over)
		}
		return errs.New(errs.DeadlineExceeded, "sandbox %s was not ready in time: %s: %w", name, p, why)
	}
}

func (p Probe) try(ctx context.Context, g *guest.Client) error {
	if len(p.Command) > 0 {
		return run(ctx, g, p.Command)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return g.Dial(ctx, uint16(p.Port)) }
	if p.Path == "" {
		conn, err := dial(ctx, "", "")
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	c := http.Client{
		Transport:     &http.Transport{DialContext: dial, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://localhost:%d%s", p.Port, p.Path), http.NoBody)
	if err != nil {
		return errs.New(errs.InvalidArgument, "%s: %w", p, err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if got := uint32(resp.StatusCode); p.Status == 0 && got/100 != 2 || p.Status != 0 && got != p.Status {
		return fmt.Errorf("HTTP status %d", got)
	}
	return nil
}

// run runs a program in a sandbox; its output is dropped.
func run(ctx context.Context, g *guest.Client, argv []string) error {
	x := id.NewExec()
	a, err := g.Exec(ctx, proto.ExecArgs{ID: string(x), Command: proto.Command{Argv: argv}, HangUp: true})
	if err != nil {
		return err
	}
	defer a.Close()
	exit, err := a.CopyTo(io.Discard, io.Discard)
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("status %d", exit.Code)
	}
	return errors.Join(err, g.ForgetExec(ctx, x))
}

// String names the probe for people.
func (p Probe) String() string {
	switch {
	case len(p.Command) > 0:
		return fmt.Sprintf("command %q", p.Command)
	case p.Path != "":
		return fmt.Sprintf("http port %d %s", p.Port, p.Path)
	}
	return fmt.Sprintf("tcp port %d", p.Port)
}
