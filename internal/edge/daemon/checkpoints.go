package daemon

import (
	"context"
	"slices"
	"strings"

	"connectrpc.com/connect"

	broodv1 "brood/api/brood/v1"
	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox/batch"
	"brood/internal/sandbox/checkpoint"
	"brood/internal/sandbox/host"
)

type checkpointService struct{ d *Daemon }

// CreateCheckpoint saves a sandbox; it goes on.
func (s *checkpointService) CreateCheckpoint(ctx context.Context, req *connect.Request[broodv1.CreateCheckpointRequest]) (*connect.Response[broodv1.CreateCheckpointResponse], error) {
	source, err := nameOf("sandbox", req.Msg.GetSource())
	if err != nil {
		return nil, err
	}
	name, err := id.ParseName("checkpoint", req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	c, err := s.d.host.Capture(ctx, host.CaptureParams{Source: source, Name: name, Replace: req.Msg.GetReplace()})
	if err != nil {
		return nil, err
	}
	if req.Msg.GetPin() {
		if err := s.d.cps.Pin(name); err != nil {
			return nil, err
		}
		if c.Checkpoint, err = s.d.cps.Get(name); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&broodv1.CreateCheckpointResponse{
		Checkpoint: s.d.checkpointMessage(c.Checkpoint), PausedMs: uint64(c.Paused.Milliseconds()), ElapsedMs: uint64(c.Took.Milliseconds()),
	}), nil
}

// ListCheckpoints returns the checkpoints here, by name.
func (s *checkpointService) ListCheckpoints(_ context.Context, req *connect.Request[broodv1.ListCheckpointsRequest]) (*connect.Response[broodv1.ListCheckpointsResponse], error) {
	resp := &broodv1.ListCheckpointsResponse{}
	for _, cp := range s.d.cps.List() {
		if cp.Record.Temporary == "" || req.Msg.GetIncludeTemporary() {
			resp.Checkpoints = append(resp.Checkpoints, s.d.checkpointMessage(cp))
		}
	}
	for _, cp := range s.d.cps.Damaged() {
		if cp.Record.Temporary == "" || req.Msg.GetIncludeTemporary() {
			resp.Checkpoints = append(resp.Checkpoints, damagedMessage(cp))
		}
	}
	slices.SortFunc(resp.Checkpoints, func(a, b *broodv1.Checkpoint) int { return strings.Compare(a.GetName(), b.GetName()) })
	return connect.NewResponse(resp), nil
}

// damagedMessage is what can be said of a checkpoint that cannot be read.
func damagedMessage(cp checkpoint.Damaged) *broodv1.Checkpoint {
	return &broodv1.Checkpoint{
		Name: string(cp.Name), Source: cp.Record.Source, CreatedAt: stamp(cp.Record.Created), UsedAt: stamp(cp.Record.Used),
		Pinned: cp.Record.Pinned, Host: string(id.Local), Temporary: cp.Record.Temporary != "", Copy: cp.Record.Copy, Damaged: cp.Why.Error(),
	}
}

// GetCheckpoint returns one with what hangs on it.
func (s *checkpointService) GetCheckpoint(_ context.Context, req *connect.Request[broodv1.GetCheckpointRequest]) (*connect.Response[broodv1.GetCheckpointResponse], error) {
	cp, err := s.d.lookup(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	resp := &broodv1.GetCheckpointResponse{Checkpoint: s.d.checkpointMessage(cp)}
	for p, seen := cp.Manifest.Parent, map[digest.Digest]bool{}; p != "" && !seen[p]; {
		seen[p] = true
		parent, err := s.d.cps.ByDigest(p)
		if err != nil {
			break
		}
		resp.Parents = append(resp.Parents, s.d.checkpointMessage(parent))
		p = parent.Manifest.Parent
	}
	resp.Children = texts(s.d.cps.Children(cp.Digest))
	resp.Forks = texts(s.d.host.ForksOf(cp.Digest))
	for _, f := range cp.Manifest.Files {
		resp.Files = append(resp.Files, &broodv1.CheckpointFile{Path: f.Path, Size: uint64(f.Size), Sha256: string(f.SHA256)})
	}
	return connect.NewResponse(resp), nil
}

// RenameCheckpoint gives one another name; its digest stays.
func (s *checkpointService) RenameCheckpoint(_ context.Context, req *connect.Request[broodv1.RenameCheckpointRequest]) (*connect.Response[broodv1.RenameCheckpointResponse], error) {
	from, err := id.ParseName("checkpoint", req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	to, err := id.ParseName("checkpoint", req.Msg.GetNewName())
	if err != nil {
		return nil, err
	}
	if err := s.d.cps.Rename(from, to); err != nil {
		return nil, err
	}
	cp, err := s.d.cps.Get(to)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&broodv1.RenameCheckpointResponse{Checkpoint: s.d.checkpointMessage(cp)}), nil
}

// DeleteCheckpoint removes one that nothing holds.
func (s *checkpointService) DeleteCheckpoint(_ context.Context, req *connect.Request[broodv1.DeleteCheckpointRequest]) (*connect.Response[broodv1.DeleteCheckpointResponse], error) {
	name, err := id.ParseName("checkpoint", req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	deferred, err := s.d.host.DeleteCheckpoint(name, req.Msg.GetWhenUnused())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&broodv1.DeleteCheckpointResponse{Deferred: deferred}), nil
}

// PinCheckpoint keeps one from being removed.
func (s *checkpointService) PinCheckpoint(_ context.Context, req *connect.Request[broodv1.PinCheckpointRequest]) (*connect.Response[broodv1.PinCheckpointResponse], error) {
	cp, err := s.d.pin(req.Msg.GetName(), s.d.cps.Pin)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&broodv1.PinCheckpointResponse{Checkpoint: s.d.checkpointMessage(cp)}), nil
}

// UnpinCheckpoint ends that.
func (s *checkpointService) UnpinCheckpoint(_ context.Context, req *connect.Request[broodv1.UnpinCheckpointRequest]) (*connect.Response[broodv1.UnpinCheckpointResponse], error) {
	cp, err := s.d.pin(req.Msg.GetName(), s.d.cps.Unpin)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&broodv1.UnpinCheckpointResponse{Checkpoint: s.d.checkpointMessage(cp)}), nil
}

func (d *Daemon) pin(ref string, change func(id.Name) error) (checkpoint.Checkpoint, error) {
	name, err := id.ParseName("checkpoint", ref)
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	if err := change(name); err != nil {
		return checkpoint.Checkpoint{}, err
	}
	return d.cps.Get(name)
}

// Fork makes one fork of a checkpoint or, by a checkpoint made for it alone,
// of a sandbox.
func (s *checkpointService) Fork(ctx context.Context, req *connect.Request[broodv1.ForkRequest]) (*connect.Response[broodv1.ForkResponse], error) {
	name, err := forkName(req.Msg)
	if err != nil {
		return nil, err
	}
	f, err := s.d.batches.ForkOne(ctx, req.Msg.GetSource(), host.ForkParams{Name: name, Labels: req.Msg.GetLabels()})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&broodv1.ForkResponse{
		Sandbox: sandboxMessage(f.Sandbox), Digest: string(f.Sandbox.Origin.Digest), ForkMs: uint64(f.Took.Milliseconds()),
	}), nil
}

// forkName is the name that a fork was given, else one drawn for its source.
func forkName(r *broodv1.ForkRequest) (id.Name, error) {
	if r.GetName() != "" {
		return nameOf("sandbox", r.GetName())
	}
	_, name, err := batch.ParseSource(r.GetSource())
	if err != nil {
		return "", err
	}
	if dg, err := digest.Parse(name); err == nil {
		name = dg.Short()
	}
	drawn := "-" + id.Random(3)
	name = strings.TrimRight(name[:min(len(name), id.MaxName-len(drawn))], "-")
	return id.ParseName("sandbox", name+drawn)
}

// lookup finds a checkpoint by name or digest.
func (d *Daemon) lookup(ref string) (checkpoint.Checkpoint, error) {
	if dg, err := digest.Parse(ref); err == nil {
		return d.cps.ByDigest(dg)
	}
	name, err := id.ParseName("checkpoint", ref)
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	cp, err := d.cps.Get(name)
	if errs.Is(err, errs.NotFound) {
		return cp, errs.New(errs.NotFound, "no checkpoint is called %q here: `brood sb checkpoints ls` shows those there are", name)
	}
	return cp, err
}

func texts(names []id.Name) []string {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = string(n)
	}
	return all
}
