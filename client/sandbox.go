package client

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	broodv1 "brood/api/brood/v1"
	daemonv1 "brood/api/cua/daemon/v1"
)

// Sandbox is one sandbox as the daemon knows it.
type Sandbox = daemonv1.Sandbox

// CreateSandbox makes a sandbox and returns when it is ready. progress may be
// nil; it is called in order, and never after the return. The end of ctx
// cancels the creation and leaves nothing behind.
func (c *Client) CreateSandbox(ctx context.Context, req *broodv1.CreateSandboxRequest, progress func(*daemonv1.CreateSandboxProgress)) (*broodv1.CreateSandboxResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.more.CreateSandbox(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, ended(ctx, err)
	}
	for s.Receive() {
		if r := s.Msg().GetResult(); r != nil {
			return r, nil
		}
		if p := s.Msg().GetProgress(); p != nil && progress != nil {
			progress(p)
		}
	}
	return nil, ended(ctx, streamEnd(s.Err()))
}

// CancelCreateSandbox stops the creation of a sandbox. It reports whether one
// was under way.
func (c *Client) CancelCreateSandbox(ctx context.Context, name string) (bool, error) {
	r, err := unary(ctx, c.sandboxes.CancelCreateSandbox, &daemonv1.CancelCreateSandboxRequest{Name: name})
	return r.GetCancelled(), err
}

// ListSandboxes lists the sandboxes, with warnings about what could not be
// asked.
func (c *Client) ListSandboxes(ctx context.Context) (*daemonv1.ListSandboxesResponse, error) {
	return unary(ctx, c.sandboxes.ListSandboxes, &daemonv1.ListSandboxesRequest{})
}

// GetSandbox returns one sandbox.
func (c *Client) GetSandbox(ctx context.Context, name string) (*Sandbox, error) {
	r, err := unary(ctx, c.sandboxes.GetSandbox, &daemonv1.GetSandboxRequest{Name: name})
	return r.GetSandbox(), err
}

// GetSandboxInfo returns all that is known of one sandbox.
func (c *Client) GetSandboxInfo(ctx context.Context, name string) (*broodv1.SandboxInfo, error) {
	r, err := unary(ctx, c.more.GetSandboxInfo, &broodv1.GetSandboxInfoRequest{Name: name})
	return r.GetInfo(), err
}

// GetIdentity returns what differs between a fork and its siblings.
func (c *Client) GetIdentity(ctx context.Context, name string) (*broodv1.Identity, error) {
	r, err := unary(ctx, c.more.GetIdentity, &broodv1.GetIdentityRequest{Name: name})
	return r.GetIdentity(), err
}

// ListProcesses lists the processes inside a sandbox, by pid.
func (c *Client) ListProcesses(ctx context.Context, name string) ([]*broodv1.Process, error) {
	r, err := unary(ctx, c.more.ListProcesses, &broodv1.ListProcessesRequest{Name: name})
	return r.GetProcesses(), err
}

// DeleteSandbox ends a sandbox and removes what it held.
func (c *Client) DeleteSandbox(ctx context.Context, name string) error {
	_, err := unary(ctx, c.sandboxes.DeleteSandbox, &daemonv1.DeleteSandboxRequest{Name: name})
	return err
}

// SuspendSandbox puts a sandbox on disk, memory included.
func (c *Client) SuspendSandbox(ctx context.Context, name string) error {
	_, err := unary(ctx, c.sandboxes.SuspendSandbox, &daemonv1.SuspendSandboxRequest{Name: name})
	return err
}

// ResumeSandbox lets a suspended sandbox go on.
func (c *Client) ResumeSandbox(ctx context.Context, name string) error {
	_, err := unary(ctx, c.sandboxes.ResumeSandbox, &daemonv1.ResumeSandboxRequest{Name: name})
	return err
}

// RestartSandbox starts a sandbox's command anew on its disk.
func (c *Client) RestartSandbox(ctx context.Context, name string) error {
	_, err := unary(ctx, c.sandboxes.RestartSandbox, &daemonv1.RestartSandboxRequest{Name: name})
	return err
}

// KeepAlive lets a sandbox live for d from now; 0: the daemon's default.
func (c *Client) KeepAlive(ctx context.Context, name string, d time.Duration) error {
	req := &daemonv1.KeepAliveRequest{Name: name}
	if d != 0 {
		req.Duration = durationpb.New(d)
	}
	_, err := unary(ctx, c.sandboxes.KeepAlive, req)
	return err
}

// WaitReady returns when every probe has succeeded; none: those the sandbox
// was made with.
func (c *Client) WaitReady(ctx context.Context, name string, probes ...*daemonv1.ReadinessProbe) error {
	req := &daemonv1.WaitReadyRequest{Name: name, Probes: probes}
	if end, ok := ctx.Deadline(); ok {
		req.Timeout = durationpb.New(time.Until(end))
	}
	_, err := unary(ctx, c.sandboxes.WaitReady, req)
	return err
}

// ForwardPort opens a local port that leads to a port of the sandbox.
func (c *Client) ForwardPort(ctx context.Context, name string, port uint32) (*daemonv1.ForwardPortResponse, error) {
	return unary(ctx, c.sandboxes.ForwardPort, &daemonv1.ForwardPortRequest{Name: name, Port: port})
}

// CloseForward closes what ForwardPort opened.
func (c *Client) CloseForward(ctx context.Context, forwardID string) error {
	_, err := unary(ctx, c.sandboxes.CloseForward, &daemonv1.CloseForwardRequest{ForwardId: forwardID})
	return err
}
