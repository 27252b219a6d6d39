package daemon

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	broodv1 "brood/api/brood/v1"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/internal/base/errs"
	"brood/internal/sandbox/host"
)

type sandboxService struct{ d *Daemon }

// CreateSandbox makes a sandbox with what the protocol's own request has no
// words for.
func (s *sandboxService) CreateSandbox(ctx context.Context, req *connect.Request[broodv1.CreateSandboxRequest], stream *connect.ServerStream[broodv1.CreateSandboxResponse]) error {
	m := req.Msg
	if m.GetCreate() == nil {
		return errs.New(errs.InvalidArgument, "create is missing: it says what to make")
	}
	p, err := createParams(m.GetCreate())
	if err != nil {
		return err
	}
	p.Command.Cwd, p.Command.User = m.GetWorkdir(), m.GetUser()
	p.TTL, p.IdleTimeout = m.GetTtl().AsDuration(), m.GetIdleTimeout().AsDuration()
	for _, b := range m.GetMounts() {
		p.Mounts = append(p.Mounts, host.Mount{Source: b.GetSource(), Target: b.GetTarget(), ReadOnly: b.GetReadOnly()})
	}
	for _, c := range m.GetWaitForCommands() {
		if len(c.GetArgv()) == 0 {
			return errs.New(errs.InvalidArgument, "a command to wait for is empty")
		}
		p.Probes = append(p.Probes, host.Probe{Command: c.GetArgv()})
	}
	p.Progress = progressTo(p.Name, func(m *daemonv1.CreateSandboxProgress) error {
		return stream.Send(&broodv1.CreateSandboxResponse{Event: &broodv1.CreateSandboxResponse_Progress{Progress: m}})
	})
	sb, err := s.d.create(ctx, p)
	if err != nil {
		return err
	}
	return stream.Send(&broodv1.CreateSandboxResponse{Event: &broodv1.CreateSandboxResponse_Result{
		Result: &broodv1.CreateSandboxResult{Sandbox: sandboxMessage(sb), Warnings: sb.Warnings},
	}})
}

// GetSandboxInfo says all that is known of a sandbox.
func (s *sandboxService) GetSandboxInfo(ctx context.Context, req *connect.Request[broodv1.GetSandboxInfoRequest]) (*connect.Response[broodv1.GetSandboxInfoResponse], error) {
	sb, err := s.d.sandbox(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	m := infoMessage(sb)
	if g, _, err := s.d.host.Guest(sb.Name); err == nil {
		if m.MemoryBytes, err = g.Usage(ctx); err != nil {
			m.Warnings = append(m.Warnings, "memory in use is not known: "+err.Error())
		}
	}
	return connect.NewResponse(&broodv1.GetSandboxInfoResponse{Info: m}), nil
}

// GetIdentity says what was renewed when the sandbox came to be.
func (s *sandboxService) GetIdentity(_ context.Context, req *connect.Request[broodv1.GetIdentityRequest]) (*connect.Response[broodv1.GetIdentityResponse], error) {
	sb, err := s.d.sandbox(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	if sb.Identity == nil {
		return nil, errs.New(errs.FailedPrecondition, "sandbox %s has no identity yet: it is %s", sb.Name, sb.State)
	}
	m := &broodv1.Identity{Name: sb.Identity.Name, Hostname: sb.Identity.Hostname, Origin: originMessage(sb.Origin), ConfirmedAt: stamp(sb.ConfirmedAt)}
	for _, r := range sb.Identity.Renewed {
		if r.What == "machine-id" {
			m.MachineId = r.Value
		}
		detail := r.Value
		if r.Error != "" {
			detail = r.Error
		}
		m.Renewals = append(m.Renewals, &broodv1.Renewal{Part: r.What, Renewed: r.Error == "", Detail: detail})
	}
	return connect.NewResponse(&broodv1.GetIdentityResponse{Identity: m}), nil
}

// ListProcesses lists what runs in a sandbox.
func (s *sandboxService) ListProcesses(ctx context.Context, req *connect.Request[broodv1.ListProcessesRequest]) (*connect.Response[broodv1.ListProcessesResponse], error) {
	g, err := s.d.guest(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	all, err := g.Ps(ctx)
	if err != nil {
		return nil, err
	}
	resp := &broodv1.ListProcessesResponse{}
	for _, p := range all {
		resp.Processes = append(resp.Processes, &broodv1.Process{
			Pid: uint32(p.PID), ParentPid: uint32(p.PPID), Uid: uint32(p.UID), Argv: p.Argv, State: p.State,
			ResidentBytes: p.Memory, CpuTime: durationpb.New(p.CPU),
		})
	}
	return connect.NewResponse(resp), nil
}
