package daemon

import (
	"context"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	daemonv1 "brood/api/cua/daemon/v1"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox"
	"brood/internal/sandbox/guest/proto"
	"brood/internal/sandbox/host"
)

type cuaSandboxService struct{ d *Daemon }

// ListSandboxes returns the sandboxes of this machine, by name.
func (s *cuaSandboxService) ListSandboxes(_ context.Context, req *connect.Request[daemonv1.ListSandboxesRequest]) (*connect.Response[daemonv1.ListSandboxesResponse], error) {
	resp := &daemonv1.ListSandboxesResponse{}
	if l := req.Msg.GetLocation(); l != "" && l != "local" {
		resp.Warnings = append(resp.Warnings, fmt.Sprintf("location %q: this daemon has local sandboxes only", l))
		return connect.NewResponse(resp), nil
	}
	for _, sb := range s.d.host.List() {
		resp.Sandboxes = append(resp.Sandboxes, sandboxMessage(sb))
	}
	return connect.NewResponse(resp), nil
}

// CreateSandbox makes a sandbox and answers when it is ready. A caller that
// goes away ends the create, and nothing of it is left.
func (s *cuaSandboxService) CreateSandbox(ctx context.Context, req *connect.Request[daemonv1.CreateSandboxRequest]) (*connect.Response[daemonv1.CreateSandboxResponse], error) {
	p, err := createParams(req.Msg)
	if err != nil {
		return nil, err
	}
	sb, err := s.d.create(ctx, p)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&daemonv1.CreateSandboxResponse{Sandbox: sandboxMessage(sb)}), nil
}

// CreateSandboxStream is CreateSandbox with progress on the way.
func (s *cuaSandboxService) CreateSandboxStream(ctx context.Context, req *connect.Request[daemonv1.CreateSandboxStreamRequest], stream *connect.ServerStream[daemonv1.CreateSandboxStreamResponse]) error {
	p, err := createParams(req.Msg.GetCreate())
	if err != nil {
		return err
	}
	p.Progress = progressTo(p.Name, func(m *daemonv1.CreateSandboxProgress) error {
		return stream.Send(&daemonv1.CreateSandboxStreamResponse{Event: &daemonv1.CreateSandboxStreamResponse_Progress{Progress: m}})
	})
	sb, err := s.d.create(ctx, p)
	if err != nil {
		return err
	}
	return stream.Send(&daemonv1.CreateSandboxStreamResponse{Event: &daemonv1.CreateSandboxStreamResponse_Result{
		Result: &daemonv1.CreateSandboxResponse{Sandbox: sandboxMessage(sb)},
	}})
}

// progressTo sends progress until that fails; the create's own context tells
// it that the caller is gone. Byte counts go out ten times a second at most.
func progressTo(name string, send func(*daemonv1.CreateSandboxProgress) error) func(string, string, int64, int64) {
	var last time.Time
	var failed error
	return func(phase, detail string, done, total int64) {
		now := time.Now()
		if failed != nil || done > 0 && done < total && now.Sub(last) < 100*time.Millisecond {
			return
		}
		m := &daemonv1.CreateSandboxProgress{Phase: phase, Detail: detail, Sandbox: name}
		if done > 0 {
			d, t := uint64(done), uint64(max(done, total))
			f := float64(d) / float64(t)
			m.BytesDone, m.BytesTotal, m.Fraction = &d, &t, &f
		}
		last, failed = now, send(m)
	}
}

// CancelCreateSandbox ends a create that is under way.
func (s *cuaSandboxService) CancelCreateSandbox(_ context.Context, req *connect.Request[daemonv1.CancelCreateSandboxRequest]) (*connect.Response[daemonv1.CancelCreateSandboxResponse], error) {
	name, err := nameOf("sandbox", req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	resp := &daemonv1.CancelCreateSandboxResponse{Cancelled: s.d.creates.cancel(name)}
	if !resp.Cancelled {
		resp.Message = fmt.Sprintf("no create of %s is under way", name)
	}
	return connect.NewResponse(resp), nil
}

// GetSandbox returns one sandbox.
func (s *cuaSandboxService) GetSandbox(_ context.Context, req *connect.Request[daemonv1.GetSandboxRequest]) (*connect.Response[daemonv1.GetSandboxResponse], error) {
	sb, err := s.d.sandbox(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&daemonv1.GetSandboxResponse{Sandbox: sandboxMessage(sb)}), nil
}

// DeleteSandbox removes one with all it holds.
func (s *cuaSandboxService) DeleteSandbox(ctx context.Context, req *connect.Request[daemonv1.DeleteSandboxRequest]) (*connect.Response[daemonv1.DeleteSandboxResponse], error) {
	name, err := nameOf("sandbox", req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	if err := s.d.host.Delete(ctx, name); err != nil {
		return nil, err
	}
	return connect.NewResponse(&daemonv1.DeleteSandboxResponse{}), nil
}

// ConnectSandbox answers when the sandbox does.
func (s *cuaSandboxService) ConnectSandbox(ctx context.Context, req *connect.Request[daemonv1.ConnectSandboxRequest]) (*connect.Response[daemonv1.ConnectSandboxResponse], error) {
	name, err := nameOf("sandbox", req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	g, sb, err := s.d.host.Guest(name)
	if err != nil {
		return nil, err
	}
	if _, err := g.Ping(ctx); err != nil {
		return nil, err
	}
	return connect.NewResponse(&daemonv1.ConnectSandboxResponse{Sandbox: sandboxMessage(sb)}), nil
}

// KeepAlive moves the end of a sandbox that has one.
func (s *cuaSandboxService) KeepAlive(_ context.Context, req *connect.Request[daemonv1.KeepAliveRequest]) (*connect.Response[daemonv1.KeepAliveResponse], error) {
	name, err := nameOf("sandbox", req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	d := 600 * time.Second // the protocol's own default
	if req.Msg.GetDuration() != nil {
		d = req.Msg.GetDuration().AsDuration()
	}
	if d <= 0 {
		return nil, errs.New(errs.InvalidArgument, "a duration of %s keeps nothing alive: give one above zero", d)
	}
	if err := s.d.host.KeepAlive(name, d); err != nil {
		return nil, err
	}
	return connect.NewResponse(&daemonv1.KeepAliveResponse{}), nil
}

// WaitReady answers when every probe has succeeded.
func (s *cuaSandboxService) WaitReady(ctx context.Context, req *connect.Request[daemonv1.WaitReadyRequest]) (*connect.Response[daemonv1.WaitReadyResponse], error) {
	name, err := nameOf("sandbox", req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	probes, err := probesOf(req.Msg.GetProbes())
	if err != nil {
		return nil, err
	}
	if err := s.d.host.WaitReady(ctx, name, probes, req.Msg.GetTimeout().AsDuration()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&daemonv1.WaitReadyResponse{}), nil
}

// What this brood does not do is said, with what would serve instead.

// SuspendSandbox is not supported.
func (s *cuaSandboxService) SuspendSandbox(context.Context, *connect.Request[daemonv1.SuspendSandboxRequest]) (*connect.Response[daemonv1.SuspendSandboxResponse], error) {
	return nil, errs.New(errs.Unsupported, "suspend is not supported by this brood: checkpoint the sandbox, remove it, and fork the checkpoint later")
}

// ResumeSandbox is not supported.
func (s *cuaSandboxService) ResumeSandbox(context.Context, *connect.Request[daemonv1.ResumeSandboxRequest]) (*connect.Response[daemonv1.ResumeSandboxResponse], error) {
	return nil, errs.New(errs.Unsupported, "resume is not supported by this brood: fork a checkpoint of the sandbox")
}

// RestartSandbox is not supported.
func (s *cuaSandboxService) RestartSandbox(context.Context, *connect.Request[daemonv1.RestartSandboxRequest]) (*connect.Response[daemonv1.RestartSandboxResponse], error) {
	return nil, errs.New(errs.Unsupported, "restart is not supported by this brood: remove the sandbox and create it again, or fork a checkpoint")
}

// ForwardPort is not supported.
func (s *cuaSandboxService) ForwardPort(context.Context, *connect.Request[daemonv1.ForwardPortRequest]) (*connect.Response[daemonv1.ForwardPortResponse], error) {
	return nil, errs.New(errs.Unsupported, "port forwarding is not supported by this brood: run the client inside the sandbox with exec")
}

// CloseForward is not supported.
func (s *cuaSandboxService) CloseForward(context.Context, *connect.Request[daemonv1.CloseForwardRequest]) (*connect.Response[daemonv1.CloseForwardResponse], error) {
	return nil, errs.New(errs.Unsupported, "port forwarding is not supported by this brood")
}

// sandbox finds a sandbox by its reference.
func (d *Daemon) sandbox(ref string) (host.Sandbox, error) {
	name, err := nameOf("sandbox", ref)
	if err != nil {
		return host.Sandbox{}, err
	}
	return d.host.Get(name)
}

// create makes a sandbox; CancelCreateSandbox can end it.
func (d *Daemon) create(ctx context.Context, p host.CreateParams) (host.Sandbox, error) {
	ctx, done := d.creates.begin(ctx, id.Name(p.Name))
	defer done()
	return d.host.Create(ctx, p)
}

// createParams reads a request to create, and refuses what this daemon cannot
// do rather than leave it out.
func createParams(m *daemonv1.CreateSandboxRequest) (host.CreateParams, error) {
	if err := refuseForeign(m); err != nil {
		return host.CreateParams{}, err
	}
	env, err := environ(m.GetEnv())
	if err != nil {
		return host.CreateParams{}, err
	}
	probes, err := probesOf(m.GetWaitFor())
	if err != nil {
		return host.CreateParams{}, err
	}
	for name, port := range m.GetServices() {
		if name == "" || port > 65535 {
			return host.CreateParams{}, errs.New(errs.InvalidArgument, "service %q on port %d: give a name and a port of at most 65535", name, port)
		}
	}
	for _, port := range m.GetPorts() {
		if port == 0 || port > 65535 {
			return host.CreateParams{}, errs.New(errs.InvalidArgument, "port %d: ports are 1 to 65535", port)
		}
	}
	if m.GetReadyTimeout().AsDuration() < 0 {
		return host.CreateParams{}, errs.New(errs.InvalidArgument, "ready_timeout is negative")
	}
	return host.CreateParams{
		Name: m.GetName(), Image: m.GetImage(), Command: proto.Command{Argv: m.GetCommand(), Env: env},
		Shape:  sandbox.Shape{CPUs: m.GetCpus(), MemoryMiB: m.GetMemoryMb()},
		Labels: m.GetLabels(), Ports: m.GetPorts(), Services: m.GetServices(), Network: m.GetNetwork(),
		NotForkable: m.Forkable != nil && !m.GetForkable(), OwnerPID: int(m.GetOwnerPid()), KeepFailed: m.GetKeepOnFailure(),
		Probes: probes, ReadyLimit: m.GetReadyTimeout().AsDuration(),
	}, nil
}

// refuseForeign names the first thing of a request that is not for this
// daemon: its own kinds are local containers on gVisor.
func refuseForeign(m *daemonv1.CreateSandboxRequest) error {
	misplaced := func(axis, got, valid string) error {
		err := errs.New(errs.Unsupported, "%s %q is not supported here: use %s", axis, got, valid)
		return errs.With(errs.With(err, errs.MetaAxis, axis), errs.MetaValid, valid)
	}
	in := func(s string, valid ...string) bool {
		for _, v := range valid {
			if s == v {
				return true
			}
		}
		return s == ""
	}
	switch {
	case !in(m.GetLocation(), "local"):
		return misplaced("on", m.GetLocation(), "local")
	case !in(m.GetKind(), "auto", "container"):
		return misplaced("kind", m.GetKind(), "container")
	case !in(m.GetRuntime(), "auto", "gvisor"):
		return misplaced("runtime", m.GetRuntime(), "gvisor")
	case !in(m.GetOs(), "linux"):
		return misplaced("os", m.GetOs(), "linux")
	}
	var extra []string
	for what, asked := range map[string]bool{
		"pool": m.GetPool() != "", "url": m.GetUrl() != "", "token": m.GetToken() != "", "sidecars": len(m.GetSidecars()) > 0,
		"registry_secret": m.GetRegistrySecret() != nil, "build": m.GetBuild() != nil, "gpu": m.GetGpu() != "",
	} {
		if asked {
			extra = append(extra, what)
		}
	}
	if len(extra) > 0 {
		return errs.New(errs.Unsupported, "this brood does not support %s: leave it out", strings.Join(extra, ", "))
	}
	return nil
}

func probesOf(all []*daemonv1.ReadinessProbe) ([]host.Probe, error) {
	var probes []host.Probe
	for _, p := range all {
		if p.GetPort() == 0 || p.GetPort() > 65535 {
			return nil, errs.New(errs.InvalidArgument, "a probe of port %d: ports are 1 to 65535", p.GetPort())
		}
		if path := p.GetHttpPath(); path != "" && !strings.HasPrefix(path, "/") {
			return nil, errs.New(errs.InvalidArgument, "a probe's path %q does not begin with /", path)
		}
		probes = append(probes, host.Probe{Port: p.GetPort(), Path: p.GetHttpPath(), Status: p.GetHttpStatus()})
	}
	return probes, nil
}
