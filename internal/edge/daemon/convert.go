package daemon

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	broodv1 "brood/api/brood/v1"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox"
	"brood/internal/sandbox/batch"
	"brood/internal/sandbox/checkpoint"
	"brood/internal/sandbox/host"
)

// localPrefix begins the qualified reference of a sandbox of this machine.
const localPrefix = "local:"

// nameOf reads a sandbox's name as callers write it: bare or qualified.
func nameOf(kind, ref string) (id.Name, error) {
	return id.ParseName(kind, strings.TrimPrefix(ref, localPrefix))
}

var states = map[sandbox.State]daemonv1.SandboxState{
	sandbox.Provisioning: daemonv1.SandboxState_SANDBOX_STATE_PROVISIONING,
	sandbox.Running:      daemonv1.SandboxState_SANDBOX_STATE_RUNNING,
	sandbox.Stopped:      daemonv1.SandboxState_SANDBOX_STATE_STOPPED,
	sandbox.Deleting:     daemonv1.SandboxState_SANDBOX_STATE_DELETING,
	sandbox.Failed:       daemonv1.SandboxState_SANDBOX_STATE_FAILED,
}

func sandboxMessage(sb host.Sandbox) *daemonv1.Sandbox {
	m := &daemonv1.Sandbox{
		Name: string(sb.Name), Id: localPrefix + string(sb.Name), Provider: daemonv1.SandboxProvider_SANDBOX_PROVIDER_LOCAL,
		State: states[sb.State], Image: sb.Image, Labels: sb.Labels, CreatedAt: stamp(sb.CreatedAt), ExpiresAt: stamp(sb.ExpiresAt),
		RuntimeType: sb.Driver, Ephemeral: sb.Ephemeral, Services: sb.Services, Location: "local", Kind: "container", Runtime: sb.Driver,
		ProviderDetails: map[string]string{"uid": string(sb.ID)},
	}
	if sb.State == sandbox.Failed {
		m.Error = sb.Reason
	} else if sb.Reason != "" {
		m.ProviderDetails["reason"] = sb.Reason
	}
	return m
}

func infoMessage(sb host.Sandbox) *broodv1.SandboxInfo {
	m := &broodv1.SandboxInfo{
		Sandbox: sandboxMessage(sb), Uid: string(sb.ID), Driver: sb.Driver, RuntimeHash: string(sb.Runtime),
		Command: sb.Command.Argv, Workdir: sb.Command.Cwd, User: sb.Command.User,
		Cpus: sb.Shape.CPUs, MemoryMb: sb.Shape.MemoryMiB, Network: sb.Network, Forkable: sb.Forkable,
		BaseDigest: string(sb.Root.Digest), Origin: originMessage(sb.Origin), Warnings: sb.Warnings,
	}
	if sb.IdleTimeout > 0 {
		m.IdleTimeout = durationpb.New(sb.IdleTimeout)
	}
	if !sb.Forkable {
		m.WhyNotForkable = "it was created not to be forkable"
	}
	for _, b := range sb.Mounts {
		m.Mounts = append(m.Mounts, &broodv1.Mount{Source: b.Source, Target: b.Target, ReadOnly: b.ReadOnly})
	}
	if sb.ExitCode != nil {
		code := int32(*sb.ExitCode)
		m.ExitCode = &code
	}
	return m
}

func originMessage(o *host.Origin) *broodv1.ForkOrigin {
	if o == nil {
		return nil
	}
	return &broodv1.ForkOrigin{Digest: string(o.Digest), Checkpoint: string(o.Checkpoint), BatchId: string(o.Batch), Index: uint32(o.Index), Uuid: o.UUID}
}

func (d *Daemon) checkpointMessage(cp checkpoint.Checkpoint) *broodv1.Checkpoint {
	m := cp.Manifest
	return &broodv1.Checkpoint{
		Name: string(cp.Name), Digest: string(cp.Digest), Source: cp.Record.Source, CreatedAt: stamp(cp.Record.Created), UsedAt: stamp(cp.Record.Used),
		Pinned: cp.Record.Pinned, HasMemory: m.Capture == checkpoint.Memory, Driver: m.Driver, RuntimeHash: string(m.Runtime),
		Host: string(id.Local), BaseDigest: string(m.Base.Digest), Image: string(m.Base.Kind), ParentDigest: string(m.Parent),
		SizeBytes: uint64(cp.Size()), UniqueBytes: uint64(cp.Size()),
		Cpus: m.Shape.CPUs, MemoryMb: m.Shape.MemoryMiB, Temporary: cp.Record.Temporary != "", Copy: cp.Record.Copy,
	}
}

// requestOf reads a batch's request from the wire.
func requestOf(m *daemonv1.ForkSandboxBatchRequest) batch.Request {
	r := batch.Request{
		Source: m.GetSource(), Count: m.GetCount(), GroupSize: m.GetGroupSize(), On: m.GetOn(), MaxParallelPerHost: m.GetMaxParallelPerHost(),
		CPUs: m.GetCpus(), MemoryMiB: m.GetMemoryMb(), NamePrefix: m.GetNamePrefix(), Retries: m.GetRetries(), NoRetry: m.GetNoRetry(),
	}
	for _, g := range m.GetGroups() {
		r.Groups = append(r.Groups, batch.Group{Source: g.GetSource(), Count: g.GetCount(), NamePrefix: g.GetNamePrefix()})
	}
	if f := m.GetFallback(); f != nil {
		r.Fallback = &batch.Fallback{S3Bucket: f.GetS3Bucket(), S3Prefix: f.GetS3Prefix(), S3Region: f.GetS3Region(), S3Endpoint: f.GetS3Endpoint(), Dir: f.GetDir()}
	}
	return r
}

func requestMessage(r batch.Request) *daemonv1.ForkSandboxBatchRequest {
	m := &daemonv1.ForkSandboxBatchRequest{
		Source: r.Source, Count: r.Count, GroupSize: r.GroupSize, On: r.On, MaxParallelPerHost: r.MaxParallelPerHost,
		Cpus: r.CPUs, MemoryMb: r.MemoryMiB, NamePrefix: r.NamePrefix, Retries: r.Retries, NoRetry: r.NoRetry,
	}
	for _, g := range r.Groups {
		m.Groups = append(m.Groups, &daemonv1.ForkBatchGroup{Source: g.Source, Count: g.Count, NamePrefix: g.NamePrefix})
	}
	if f := r.Fallback; f != nil {
		m.Fallback = &daemonv1.SnapshotFallback{S3Bucket: f.S3Bucket, S3Prefix: f.S3Prefix, S3Region: f.S3Region, S3Endpoint: f.S3Endpoint, Dir: f.Dir}
	}
	return m
}

// eventMessage is a batch's record on the wire; a ready fork of this machine
// comes with its sandbox, as it is now.
func (d *Daemon) eventMessage(r batch.Record) *daemonv1.ForkSandboxBatchResponse {
	switch {
	case r.Placement != nil:
		p := r.Placement
		return &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Placement{Placement: &daemonv1.ForkBatchPlacement{
			Group: p.Group, Source: p.Source, Host: string(p.Host), Count: p.Count, Attempt: p.Attempt, NeedsSync: p.NeedsSync, Reason: p.Reason,
		}}}
	case r.Sync != nil:
		s := r.Sync
		return &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Sync{Sync: &daemonv1.SnapshotSyncProgress{
			Name: s.Name, Digest: string(s.Digest), From: s.From, BytesDone: s.BytesDone, BytesTotal: s.BytesTotal,
			BytesReused: s.BytesReused, Done: s.Done, Verified: s.Verified, To: string(s.To),
		}}}
	case r.Item != nil:
		m := &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Item{Item: itemMessage(*r.Item)}}
		if r.Item.Error == "" && r.Item.Host == id.Local {
			if sb, err := d.host.Get(r.Item.Name); err == nil {
				m.Sandbox = sandboxMessage(sb)
			}
		}
		return m
	}
	return &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Done{Done: summaryMessage(r.Done)}}
}

func itemMessage(i batch.Item) *daemonv1.ForkBatchItem {
	return &daemonv1.ForkBatchItem{
		Index: i.Index, Group: i.Group, Source: i.Source, Name: string(i.Name), Host: string(i.Host), Space: i.Space,
		Error: i.Error, ErrorCode: string(i.ErrorCode), Attempt: i.Attempt, ElapsedMs: i.ElapsedMS, ForkMs: i.ForkMS,
	}
}

func summaryMessage(s *batch.Summary) *daemonv1.ForkBatchSummary {
	if s == nil {
		return nil
	}
	m := &daemonv1.ForkBatchSummary{Ok: s.OK, Failed: s.Failed, ElapsedMs: s.ElapsedMS, PerHost: map[string]uint32{}, PeakParallel: map[string]uint32{}}
	for k, v := range s.PerHost {
		m.PerHost[string(k)] = v
	}
	for k, v := range s.PeakParallel {
		m.PeakParallel[string(k)] = v
	}
	return m
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// environ turns a map into K=V, sorted, and refuses what is no name.
func environ(m map[string]string) ([]string, error) {
	var all []string
	for k, v := range m {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
			return nil, errs.New(errs.InvalidArgument, "environment variable %.80q is not valid: a name has no '=' and no zero byte", k)
		}
		all = append(all, fmt.Sprintf("%s=%s", k, v))
	}
	slices.Sort(all)
	return all, nil
}
