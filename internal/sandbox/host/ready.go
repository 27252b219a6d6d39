package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox"
	"brood/internal/sandbox/guest"
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
	if _, _, err := h.Guest(name); err != nil {
		return err
	}
	if limit <= 0 {
		limit = DefaultReadyLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
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
	return h.WaitReady(ctx, e.view().Name, p.Probes, p.ReadyLimit)
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
		if !sleep(ctx, probePeriod) {
			return errs.New(errs.DeadlineExceeded, "sandbox %s was not ready in time: %s: %w", name, p, why)
		}
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
