package host

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/home"
	"brood/internal/sandbox"
	"brood/internal/sandbox/checkpoint"
	"brood/internal/sandbox/guest/proto"
)

// ForkParams say what to fork and what the fork is called.
type ForkParams struct {
	Checkpoint id.Name
	Name       id.Name
	Labels     map[string]string
	Batch      id.Batch
	Index      int
	Token      uint64 // of the batch's attempt
}

// Forked is a fork and what it took.
type Forked struct {
	Sandbox Sandbox
	Took    time.Duration // from the request on this machine, waiting for a slot left out
}

// Fork makes a sandbox that goes on from a checkpoint. It returns when the
// fork has confirmed its own identity and its processes run. After an error
// nothing of it is left.
func (h *Host) Fork(ctx context.Context, p ForkParams) (_ Forked, err error) {
	cp, err := h.p.Checkpoints.Get(p.Checkpoint)
	if err != nil {
		return Forked{}, err
	}
	if err := cp.Check(h.p.Machine); err != nil {
		return Forked{}, fmt.Errorf("fork %s into %s: %w", p.Checkpoint, p.Name, err)
	}
	rec, from, err := h.planFork(p, cp)
	if err != nil {
		return Forked{}, err
	}
	img, let, err := h.p.Images.Hold(ctx, from.Base)
	if err != nil {
		return Forked{}, errs.New(errs.FailedPrecondition, "checkpoint %s needs the image %s it was made on: %w", p.Checkpoint, from.Base.Short(), err)
	}
	rec.Root = img.Root
	e, err := h.reserve(rec)
	let() // from here on the fork is seen to stand on it
	if err != nil {
		return Forked{}, err
	}
	release, err := e.hold(ctx)
	if err != nil {
		h.forget(e)
		return Forked{}, err
	}
	defer release()
	var undo life.Undo
	defer undo.Run(ctx, &err)
	undo.Do(func(context.Context) error { h.forgetRemoved(e); return nil })
	free, err := h.slot(ctx)
	if err != nil {
		return Forked{}, err
	}
	defer free()
	began := time.Now()
	undo.Do(func(ctx context.Context) error { return h.remove(ctx, e) })
	if err := h.resume(ctx, e, p, cp, from); err != nil {
		return Forked{}, fmt.Errorf("fork %s into %s: %w", p.Checkpoint, p.Name, err)
	}
	undo.Keep()
	h.logged(h.p.Checkpoints.Touch(p.Checkpoint, began))
	return Forked{Sandbox: e.view(), Took: time.Since(began)}, nil
}

// unrestored is the error of a restore for the person who asked for it. A
// runtime that chokes on a file tells it with its goroutines; that is for the
// log.
func (h *Host) unrestored(name id.Name, mounts []Mount, err error) error {
	switch errs.CodeOf(err) {
	case errs.Internal, errs.FailedPrecondition, errs.NotFound, errs.DataLoss:
	default:
		return err // of the machine or the caller, and none of the files
	}
	for _, m := range mounts {
		if _, gone := os.Stat(m.Source); gone != nil {
			h.p.Log.Error("a restore failed, and what is mounted is not there", "checkpoint", name, "mount", m.Source, "error", err)
			return errs.New(errs.FailedPrecondition, "checkpoint %s was made with %s mounted at %s, and its forks need that: %w", name, m.Source, m.Target, gone)
		}
	}
	if errs.CodeOf(err) == errs.NotFound || exhausted(err) {
		return err
	}
	first, rest, _ := strings.Cut(err.Error(), "\n")
	if rest != "" {
		h.p.Log.Error("a restore failed", "checkpoint", name, "error", err)
		err = errs.New(errs.CodeOf(err), "%s", strings.TrimRight(first, ":; ")) // its cause is text alone
	}
	changed := ""
	if len(mounts) > 0 {
		changed = fmt.Sprintf("; if not, what it has open below %s may be there no more", mounts[0].Source)
	}
	return errs.New(errs.CodeOf(err), "%w: the checkpoint may be damaged, `brood sb checkpoints verify %s` says whether%s", err, name, changed)
}

// exhausted says that the machine lacked something. A runtime tells it as text.
func exhausted(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN}, func(e syscall.Errno) bool {
		return strings.Contains(err.Error(), e.Error())
	})
}

// saved is what a checkpoint says of the sandbox it was made from: what a fork
// needs to go on, and what it inherits. The store keeps it beside the driver's
// files and lists it in the manifest like them.
type saved struct {
	Image    string            `json:"image"`
	Base     digest.Digest     `json:"base"`
	Mounts   []Mount           `json:"mounts,omitempty"`
	Shape    sandbox.Shape     `json:"shape"`
	Command  proto.Command     `json:"command"`
	Ports    []uint32          `json:"ports,omitempty"`
	Services map[string]uint32 `json:"services,omitempty"`
	Network  string            `json:"network"`
	Magic    string            `json:"magic"`
	Stopped  bool              `json:"stopped,omitempty"` // its command had ended: forks start it again
}

func (h *Host) planFork(p ForkParams, cp checkpoint.Checkpoint) (record, saved, error) {
	if _, err := id.ParseName("sandbox", string(p.Name)); err != nil {
		return record{}, saved{}, err
	}
	var from saved
	if err := readSaved(cp, &from); err != nil {
		return record{}, saved{}, err
	}
	return record{Magic: from.Magic, Sandbox: Sandbox{
		ID: id.NewSandbox(), Name: p.Name, Driver: h.p.Driver.Name(), Runtime: cp.Manifest.Runtime, State: sandbox.Provisioning,
		Image: from.Image, Mounts: from.Mounts, Shape: from.Shape, Command: from.Command,
		Labels: p.Labels, Ports: from.Ports, Services: from.Services, Network: from.Network, Forkable: true,
		CreatedAt: time.Now(),
		Origin: &Origin{
			Checkpoint: p.Checkpoint, Digest: cp.Digest,
			Batch: p.Batch, Index: p.Index, Token: p.Token, UUID: newUUID(),
		},
	}}, from, nil
}

// resume makes the planned fork go on.
func (h *Host) resume(ctx context.Context, e *entry, p ForkParams, cp checkpoint.Checkpoint, from saved) error {
	sb := e.view()
	fs, err := h.openFiles(sb.ID)
	if err != nil {
		return home.DiskError(err, "folder of sandbox %s", sb.Name)
	}
	defer closeAll([]*os.File{fs.Diagnostics, fs.Log[0], fs.Log[1]})
	if err := h.save(e); err != nil {
		return err
	}
	ch, err := h.p.Driver.Restore(ctx, sandbox.RestoreParams{
		ID: sb.ID, Dir: cp.Dir, Runtime: sb.Runtime, Root: sb.Root, Shape: sb.Shape,
		Hostname: string(sb.Name), Magic: from.Magic, Files: fs,
	})
	if err != nil {
		return h.unrestored(p.Checkpoint, from.Mounts, err)
	}
	g, err := h.connect(ctx, e, ch)
	if err != nil {
		return err
	}
	who := identity{uuid: sb.Origin.UUID, batch: p.Batch, index: p.Index}
	if err := h.identify(ctx, e, g, who); err != nil {
		return err
	}
	if err := g.Thaw(ctx); err != nil {
		return fmt.Errorf("let the processes go on: %w", err)
	}
	if from.Stopped && len(sb.Command.Argv) > 0 {
		if _, err := g.Start(ctx, proto.StartArgs{Command: sb.Command}); err != nil {
			return fmt.Errorf("start the command: %w", err)
		}
	}
	return h.running(e)
}
