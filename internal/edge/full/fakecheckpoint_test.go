package full_test

import (
	"context"
	"maps"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	broodv1 "brood/api/brood/v1"
	"brood/internal/base/errs"
	"brood/internal/base/id"
)

type fakeCheckpoints struct{ f *fake }

func (s *fakeCheckpoints) CreateCheckpoint(_ context.Context, req *connect.Request[broodv1.CreateCheckpointRequest]) (*connect.Response[broodv1.CreateCheckpointResponse], error) {
	m := req.Msg
	if _, err := id.ParseName("checkpoint", m.GetName()); err != nil {
		return nil, err
	}
	if _, err := s.f.box(m.GetSource()); err != nil {
		return nil, err
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if _, taken := s.f.checkpoints[m.GetName()]; taken && !m.GetReplace() {
		return nil, errs.New(errs.AlreadyExists, "checkpoint %s exists: choose another name, or --replace", m.GetName())
	}
	cp := &broodv1.Checkpoint{
		Name: m.GetName(), Digest: strings.Repeat("cd", 32), Source: m.GetSource(), Pinned: m.GetPin(), HasMemory: m.GetName() != "disk", Driver: "fake",
		Host: "local", SizeBytes: 4_200_000, UniqueBytes: 4_100_000, MemoryMb: 512, CreatedAt: timestamppb.Now(), UsedAt: timestamppb.Now(),
	}
	if m.GetName() == "broken" {
		cp.Damaged = "file pages.img differs from the manifest"
	}
	s.f.checkpoints[cp.GetName()] = cp
	return connect.NewResponse(&broodv1.CreateCheckpointResponse{Checkpoint: cp, PausedMs: 12, ElapsedMs: 34}), nil
}

func (s *fakeCheckpoints) ListCheckpoints(context.Context, *connect.Request[broodv1.ListCheckpointsRequest]) (*connect.Response[broodv1.ListCheckpointsResponse], error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	r := &broodv1.ListCheckpointsResponse{}
	for _, name := range slices.Sorted(maps.Keys(s.f.checkpoints)) {
		r.Checkpoints = append(r.Checkpoints, s.f.checkpoints[name])
	}
	return connect.NewResponse(r), nil
}

// find returns a checkpoint; the lock is held.
func (f *fake) find(name string) (*broodv1.Checkpoint, error) {
	cp, ok := f.checkpoints[name]
	if !ok {
		return nil, errs.New(errs.NotFound, "no checkpoint is called %q", name)
	}
	return cp, nil
}

// forks are the sandboxes forked from a checkpoint; the lock is held.
func (f *fake) forks(name string) []string {
	var all []string
	for _, b := range f.sandboxes {
		if b.origin.GetCheckpoint() == name {
			all = append(all, b.name)
		}
	}
	slices.Sort(all)
	return all
}

func (s *fakeCheckpoints) GetCheckpoint(_ context.Context, req *connect.Request[broodv1.GetCheckpointRequest]) (*connect.Response[broodv1.GetCheckpointResponse], error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	cp, err := s.f.find(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&broodv1.GetCheckpointResponse{Checkpoint: cp, Forks: s.f.forks(cp.GetName()), Files: []*broodv1.CheckpointFile{{Path: "pages.img", Size: 4_000_000}}}), nil
}

func (s *fakeCheckpoints) RenameCheckpoint(_ context.Context, req *connect.Request[broodv1.RenameCheckpointRequest]) (*connect.Response[broodv1.RenameCheckpointResponse], error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	cp, err := s.f.find(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	delete(s.f.checkpoints, cp.GetName())
	cp.Name = req.Msg.GetNewName()
	s.f.checkpoints[cp.GetName()] = cp
	return connect.NewResponse(&broodv1.RenameCheckpointResponse{Checkpoint: cp}), nil
}

func (s *fakeCheckpoints) DeleteCheckpoint(_ context.Context, req *connect.Request[broodv1.DeleteCheckpointRequest]) (*connect.Response[broodv1.DeleteCheckpointResponse], error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	cp, err := s.f.find(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	forks := s.f.forks(cp.GetName())
	switch {
	case cp.GetPinned():
		return nil, errs.New(errs.FailedPrecondition, "checkpoint %s is pinned: unpin it first", cp.GetName())
	case len(forks) > 0 && !req.Msg.GetWhenUnused():
		return nil, errs.New(errs.FailedPrecondition, "checkpoint %s is used by %s: remove these, or say --when-unused", cp.GetName(), strings.Join(forks, ", "))
	case len(forks) > 0:
		cp.DeleteWhenUnused = true
		return connect.NewResponse(&broodv1.DeleteCheckpointResponse{Deferred: true}), nil
	}
	delete(s.f.checkpoints, cp.GetName())
	return connect.NewResponse(&broodv1.DeleteCheckpointResponse{}), nil
}

func (f *fake) pin(name string, pinned bool) (*broodv1.Checkpoint, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	cp, err := f.find(name)
	if err == nil {
		cp.Pinned = pinned
	}
	return cp, err
}

func (s *fakeCheckpoints) PinCheckpoint(_ context.Context, req *connect.Request[broodv1.PinCheckpointRequest]) (*connect.Response[broodv1.PinCheckpointResponse], error) {
	cp, err := s.f.pin(req.Msg.GetName(), true)
	return connect.NewResponse(&broodv1.PinCheckpointResponse{Checkpoint: cp}), err
}

func (s *fakeCheckpoints) UnpinCheckpoint(_ context.Context, req *connect.Request[broodv1.UnpinCheckpointRequest]) (*connect.Response[broodv1.UnpinCheckpointResponse], error) {
	cp, err := s.f.pin(req.Msg.GetName(), false)
	return connect.NewResponse(&broodv1.UnpinCheckpointResponse{Checkpoint: cp}), err
}

func (s *fakeCheckpoints) VerifyCheckpoint(_ context.Context, req *connect.Request[broodv1.VerifyCheckpointRequest], stream *connect.ServerStream[broodv1.VerifyCheckpointResponse]) error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	cp, err := s.f.find(req.Msg.GetName())
	if err != nil {
		return err
	}
	if cp.GetDamaged() != "" {
		return errs.New(errs.DataLoss, "checkpoint %s is damaged: %s", cp.GetName(), cp.GetDamaged())
	}
	if err := stream.Send(&broodv1.VerifyCheckpointResponse{Event: &broodv1.VerifyCheckpointResponse_Progress{Progress: &broodv1.VerifyCheckpointProgress{BytesTotal: 1}}}); err != nil {
		return err
	}
	return stream.Send(&broodv1.VerifyCheckpointResponse{Event: &broodv1.VerifyCheckpointResponse_Result{
		Result: &broodv1.VerifyCheckpointResult{Checkpoint: cp, Files: 3, Bytes: cp.GetSizeBytes()},
	}})
}

func (s *fakeCheckpoints) Fork(_ context.Context, req *connect.Request[broodv1.ForkRequest]) (*connect.Response[broodv1.ForkResponse], error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	from, err := s.f.source(req.Msg.GetSource())
	if err != nil {
		return nil, err
	}
	name := req.Msg.GetName()
	if name == "" {
		name = s.f.id(from + "-x")
	}
	b, err := s.f.fork(from, name, &broodv1.ForkOrigin{Checkpoint: from, Digest: strings.Repeat("cd", 32), Uuid: "u-1"})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&broodv1.ForkResponse{Sandbox: b.message(), Digest: b.origin.GetDigest(), ForkMs: 45}), nil
}

// source checks what is to be forked; the lock is held.
func (f *fake) source(s string) (string, error) {
	kind, name, ok := strings.Cut(s, ":")
	if !ok {
		kind, name = "", s
	}
	_, isCheckpoint := f.checkpoints[name]
	_, isSandbox := f.sandboxes[name]
	if kind != "sandbox" && isCheckpoint || kind != "checkpoint" && isSandbox {
		return name, nil
	}
	return "", errs.New(errs.NotFound, "no checkpoint or sandbox is called %q", s)
}

// fork makes a fork, with the command of what the checkpoint was made of; the
// lock is held.
func (f *fake) fork(from, name string, origin *broodv1.ForkOrigin) (*box, error) {
	req := &broodv1.CreateSandboxRequest{}
	if cp, ok := f.checkpoints[from]; ok {
		from = cp.GetSource()
	}
	if b, ok := f.sandboxes[from]; ok {
		req = b.request
	}
	b, err := f.add(name, req)
	if err != nil {
		return nil, err
	}
	b.origin = origin
	return b, nil
}
