package full_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	broodv1 "brood/api/brood/v1"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/api/cua/daemon/v1/daemonv1connect"
	"brood/internal/base/errs"
	"brood/internal/base/id"
)

type fakeSandboxes struct {
	daemonv1connect.UnimplementedSandboxServiceHandler
	f *fake
}

func (s *fakeSandboxes) ListSandboxes(context.Context, *connect.Request[daemonv1.ListSandboxesRequest]) (*connect.Response[daemonv1.ListSandboxesResponse], error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	r := &daemonv1.ListSandboxesResponse{}
	for _, name := range slices.Sorted(maps.Keys(s.f.sandboxes)) {
		r.Sandboxes = append(r.Sandboxes, s.f.sandboxes[name].message())
	}
	return connect.NewResponse(r), nil
}

func (s *fakeSandboxes) GetSandbox(_ context.Context, req *connect.Request[daemonv1.GetSandboxRequest]) (*connect.Response[daemonv1.GetSandboxResponse], error) {
	b, err := s.f.box(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&daemonv1.GetSandboxResponse{Sandbox: b.message()}), nil
}

func (s *fakeSandboxes) DeleteSandbox(_ context.Context, req *connect.Request[daemonv1.DeleteSandboxRequest]) (*connect.Response[daemonv1.DeleteSandboxResponse], error) {
	b, err := s.f.box(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	delete(s.f.sandboxes, b.name)
	b.kill()
	return connect.NewResponse(&daemonv1.DeleteSandboxResponse{}), nil
}

func (s *fakeSandboxes) CancelCreateSandbox(_ context.Context, req *connect.Request[daemonv1.CancelCreateSandboxRequest]) (*connect.Response[daemonv1.CancelCreateSandboxResponse], error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	cancel, ok := s.f.creating[req.Msg.GetName()]
	if ok {
		cancel()
	}
	return connect.NewResponse(&daemonv1.CancelCreateSandboxResponse{Cancelled: ok}), nil
}

type fakeMore struct{ f *fake }

// CreateSandbox makes a sandbox. The image /stuck never becomes ready.
func (s *fakeMore) CreateSandbox(ctx context.Context, req *connect.Request[broodv1.CreateSandboxRequest], stream *connect.ServerStream[broodv1.CreateSandboxResponse]) error {
	create := req.Msg.GetCreate()
	if _, err := id.ParseName("sandbox", create.GetName()); err != nil {
		return err
	}
	if strings.HasPrefix(create.GetImage(), "registry") {
		return errs.New(errs.Unsupported, "image %q: no registries here", create.GetImage())
	}
	if create.GetMemoryMb() > 1<<20 {
		return errs.With(errs.New(errs.InsufficientDisk, "not enough disk: free 3 GB"), "missing_bytes", "3000000000")
	}
	s.f.mu.Lock()
	b, err := s.f.add(create.GetName(), req.Msg)
	if err != nil {
		s.f.mu.Unlock()
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	s.f.creating[b.name] = cancel
	s.f.mu.Unlock()
	defer func() {
		cancel()
		s.f.mu.Lock()
		defer s.f.mu.Unlock()
		delete(s.f.creating, b.name)
	}()
	p := &daemonv1.CreateSandboxProgress{Phase: "creating", Detail: "a folder", Sandbox: b.name}
	if err := stream.Send(&broodv1.CreateSandboxResponse{Event: &broodv1.CreateSandboxResponse_Progress{Progress: p}}); err != nil {
		return err
	}
	if create.GetImage() == "/stuck" {
		s.f.log("create of %s is stuck", b.name)
		<-ctx.Done()
		s.f.mu.Lock()
		defer s.f.mu.Unlock()
		delete(s.f.sandboxes, b.name)
		s.f.log("create of %s was taken back", b.name)
		return ctx.Err()
	}
	r := &broodv1.CreateSandboxResult{Sandbox: b.message()}
	if create.GetCpus() > 0 {
		r.Warnings = []string{"cpus are not enforced here"}
	}
	return stream.Send(&broodv1.CreateSandboxResponse{Event: &broodv1.CreateSandboxResponse_Result{Result: r}})
}

func (s *fakeMore) GetSandboxInfo(_ context.Context, req *connect.Request[broodv1.GetSandboxInfoRequest]) (*connect.Response[broodv1.GetSandboxInfoResponse], error) {
	b, err := s.f.box(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	c := b.request.GetCreate()
	i := &broodv1.SandboxInfo{
		Sandbox: b.message(), Uid: "sb-1", Driver: "fake", Command: c.GetCommand(), Workdir: b.request.GetWorkdir(), User: b.request.GetUser(),
		Cpus: c.GetCpus(), MemoryMb: c.GetMemoryMb(), Network: "none", Forkable: c.GetForkable(), Mounts: b.request.GetMounts(),
		Origin: b.origin, IdleTimeout: b.request.GetIdleTimeout(), MemoryBytes: 17_100_000,
	}
	if !i.GetForkable() {
		i.WhyNotForkable = "made with --forkable=false"
	}
	for _, p := range c.GetWaitFor() {
		i.Warnings = append(i.Warnings, fmt.Sprintf("probe %d %q", p.GetPort(), p.GetHttpPath()))
	}
	for _, p := range b.request.GetWaitForCommands() {
		i.Warnings = append(i.Warnings, fmt.Sprintf("probe %q", p.GetArgv()))
	}
	return connect.NewResponse(&broodv1.GetSandboxInfoResponse{Info: i}), nil
}

func (s *fakeMore) GetIdentity(_ context.Context, req *connect.Request[broodv1.GetIdentityRequest]) (*connect.Response[broodv1.GetIdentityResponse], error) {
	b, err := s.f.box(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	i := &broodv1.Identity{Name: b.name, Hostname: b.name, Origin: b.origin, ConfirmedAt: timestamppb.Now(), Renewals: []*broodv1.Renewal{
		{Part: "hostname", Renewed: true, Detail: b.name}, {Part: "ssh-host-keys", Detail: "there are none"},
	}}
	return connect.NewResponse(&broodv1.GetIdentityResponse{Identity: i}), nil
}

func (s *fakeMore) ListProcesses(_ context.Context, req *connect.Request[broodv1.ListProcessesRequest]) (*connect.Response[broodv1.ListProcessesResponse], error) {
	b, err := s.f.box(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	p := &broodv1.Process{Pid: 2, ParentPid: 1, State: "S", Argv: b.request.GetCreate().GetCommand(), ResidentBytes: 9_000_000, CpuTime: durationpb.New(1_250_000_000)}
	return connect.NewResponse(&broodv1.ListProcessesResponse{Processes: []*broodv1.Process{p}}), nil
}

type fakeLogs struct{ f *fake }

// GetLogs has what the command's arguments say, a line each; "!" in front
// makes it standard error. Following never ends.
func (s *fakeLogs) GetLogs(ctx context.Context, req *connect.Request[broodv1.GetLogsRequest], stream *connect.ServerStream[broodv1.GetLogsResponse]) error {
	b, err := s.f.box(req.Msg.GetSandbox())
	if err != nil {
		return err
	}
	lines := b.request.GetCreate().GetCommand()
	if req.Msg.Tail != nil {
		lines = lines[max(0, len(lines)-int(req.Msg.GetTail())):]
	}
	for _, l := range lines {
		m := &broodv1.GetLogsResponse{Stream: broodv1.LogStream_LOG_STREAM_STDOUT, Data: []byte(l + "\n")}
		if rest, ok := strings.CutPrefix(l, "!"); ok {
			m.Stream, m.Data = broodv1.LogStream_LOG_STREAM_STDERR, []byte(rest+"\n")
		}
		if req.Msg.GetTimestamps() {
			m.Time = &timestamppb.Timestamp{Seconds: 1_700_000_000, Nanos: 5_000_000}
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	if req.Msg.GetFollow() {
		s.f.log("following %s", b.name)
		<-ctx.Done()
	}
	return nil
}
