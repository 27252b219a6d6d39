package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/sandbox"
	"brood/internal/sandbox/checkpoint"
	"brood/internal/sandbox/guest"
	"brood/internal/sandbox/guest/proto"
)

// CaptureParams say which sandbox to save under which name.
type CaptureParams struct {
	Source    id.Name
	Name      id.Name
	Replace   bool
	Temporary id.Batch // set: for this batch, deleted with the last of its forks
}

// Captured is a checkpoint and what it took.
type Captured struct {
	Checkpoint checkpoint.Checkpoint
	Paused     time.Duration // how long the source's processes stood still
	Took       time.Duration
}

// thawLimit bounds waking the source after a capture, whatever became of the
// caller.
const thawLimit = 30 * time.Second

// Capture saves a running or stopped sandbox as a checkpoint, at one instant;
// the source goes on. After an error there is no such checkpoint.
func (h *Host) Capture(ctx context.Context, p CaptureParams) (_ Captured, err error) {
	began := time.Now()
	e, err := h.entry(p.Source)
	if err != nil {
		return Captured{}, err
	}
	release, err := e.hold(ctx)
	if err != nil {
		return Captured{}, err
	}
	defer release()
	g, from, err := e.capturable()
	if err != nil {
		return Captured{}, err
	}
	if p.Replace {
		if err := h.replaceable(p.Name); err != nil {
			return Captured{}, err
		}
	}
	draft, err := h.p.Checkpoints.Begin(p.Name, checkpoint.Options{Replace: p.Replace, Temporary: p.Temporary, Source: string(p.Source)})
	if err != nil {
		return Captured{}, err
	}
	var undo life.Undo
	defer undo.Run(ctx, &err)
	undo.Do(func(context.Context) error { return draft.Discard() })
	sb := e.view()
	facts, err := h.facts(sb, from)
	if err != nil {
		return Captured{}, err
	}
	if facts.MemoryUsed, err = g.Usage(ctx); err != nil {
		return Captured{}, err
	}
	// Refused before anything is paused (F26): what is in use bounds what will
	// be written.
	if err := checkpoint.Room(h.p.Home.Checkpoints(), facts.MemoryUsed, h.p.MinFree); err != nil {
		return Captured{}, err
	}
	paused, err := h.freezeAndSave(ctx, sb.ID, g, draft.Dir())
	if err != nil {
		return Captured{}, fmt.Errorf("checkpoint %s as %s: %w", p.Source, p.Name, err)
	}
	if p.Replace { // a batch may have begun meanwhile
		if err := h.replaceable(p.Name); err != nil {
			return Captured{}, err
		}
	}
	cp, err := draft.Publish(ctx, facts)
	if err != nil {
		return Captured{}, fmt.Errorf("checkpoint %s as %s: %w", p.Source, p.Name, err)
	}
	undo.Keep()
	if from.Stopped {
		paused = 0 // nothing ran
	}
	return Captured{Checkpoint: cp, Paused: paused, Took: time.Since(began)}, nil
}

// CanCapture says why a sandbox cannot be checkpointed; nil when it can.
func (h *Host) CanCapture(name id.Name) error {
	e, err := h.entry(name)
	if err != nil {
		return err
	}
	_, _, err = e.capturable()
	return err
}

func (e *entry) capturable() (*guest.Client, saved, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	sb := e.rec.Sandbox
	stopped := sb.State == sandbox.Stopped
	if sb.State != sandbox.Running && !stopped || e.guest == nil {
		return nil, saved{}, errs.New(errs.FailedPrecondition, "sandbox %s is %s and cannot be checkpointed%s", sb.Name, sb.State, because(sb.Reason))
	}
	if !sb.Forkable {
		return nil, saved{}, errs.New(errs.FailedPrecondition, "sandbox %s was created not to be forkable", sb.Name)
	}
	return e.guest, saved{
		Image: sb.Image, Base: sb.Root.Digest, Mounts: sb.Mounts, Shape: sb.Shape, Command: sb.Command,
		Ports: sb.Ports, Services: sb.Services, Network: sb.Network, Magic: e.rec.Magic, Stopped: stopped,
	}, nil
}

// freezeAndSave is the instant of a checkpoint.
func (h *Host) freezeAndSave(ctx context.Context, sb id.Sandbox, g *guest.Client, dir string) (_ time.Duration, err error) {
	began := time.Now()
	defer func() {
		thaw, cancel := context.WithTimeout(context.WithoutCancel(ctx), thawLimit)
		defer cancel()
		if e := g.Thaw(thaw); e != nil {
			err = errors.Join(err, fmt.Errorf("let the source go on: %w", e))
		}
	}()
	if _, err := g.Freeze(ctx, proto.FreezeArgs{Capture: true}); err != nil {
		return 0, err
	}
	if err := h.p.Driver.Capture(ctx, sb, dir); errs.Is(err, errs.NotFound) {
		return 0, errs.New(errs.Unavailable, "it ended meanwhile: %w", err) // there is a sandbox of that name
	} else if err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

// facts are what the manifest says beyond the files.
func (h *Host) facts(sb Sandbox, from saved) (checkpoint.Facts, error) {
	b, err := json.Marshal(from)
	if err != nil {
		return checkpoint.Facts{}, errs.New(errs.Internal, "describe sandbox %s: %w", sb.Name, err)
	}
	f := checkpoint.Facts{
		Driver: sb.Driver, Runtime: sb.Runtime, Capture: checkpoint.Memory, Shape: sb.Shape, Guest: b,
		Needs: h.p.Needs, Base: checkpoint.Base{Kind: checkpoint.EROFS, Digest: sb.Root.Digest},
		Check: h.p.CheckFiles,
	}
	if from.Stopped {
		f.Capture = checkpoint.Disk
	}
	if sb.Root.Host != nil {
		f.Base.Kind, f.Base.Machine = checkpoint.Host, h.p.Machine.Fingerprint
	}
	if sb.Origin != nil {
		f.Parent = sb.Origin.Digest
	}
	return f, nil
}

func readSaved(cp checkpoint.Checkpoint, s *saved) error {
	b, err := os.ReadFile(cp.GuestFile())
	if err == nil {
		err = json.Unmarshal(b, s)
	}
	if err != nil {
		return errs.New(errs.DataLoss, "checkpoint %s is damaged: %w", cp.Name, err)
	}
	return nil
}
