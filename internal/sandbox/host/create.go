package host

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/home"
	"brood/internal/sandbox"
	"brood/internal/sandbox/guest"
	"brood/internal/sandbox/guest/proto"
	"brood/internal/sandbox/image"
)

// CreateParams say what to make. The zero value of a field means its default.
type CreateParams struct {
	Name        string // empty: drawn, and the sandbox is ephemeral
	Image       string // a reference that image.Store resolves; empty: host
	Command     proto.Command
	Shape       sandbox.Shape
	Mounts      []Mount
	Labels      map[string]string
	Ports       []uint32
	Services    map[string]uint32
	Network     string // none; empty or default: none, with a warning for default
	NotForkable bool
	TTL         time.Duration
	IdleTimeout time.Duration
	Ephemeral   bool
	OwnerPID    int // an ephemeral sandbox dies with it
	KeepFailed  bool
	Probes      []Probe
	ReadyLimit  time.Duration // for all probes; 5 min

	// Progress is called with what happens now; nil is fine.
	Progress func(phase, detail string, done, total int64)
}

// Create makes a sandbox and starts its command. It returns when the sandbox
// is ready. After an error nothing of it is left, unless KeepFailed.
func (h *Host) Create(ctx context.Context, p CreateParams) (_ Sandbox, err error) {
	if p.Progress == nil {
		p.Progress = func(string, string, int64, int64) {}
	}
	rec, err := h.plan(p)
	if err != nil {
		return Sandbox{}, err
	}
	e, err := h.reserve(rec)
	if err != nil {
		return Sandbox{}, err
	}
	release, err := e.hold(ctx)
	if err != nil {
		h.forget(e)
		return Sandbox{}, err
	}
	defer release()
	var undo life.Undo
	defer undo.Run(ctx, &err)
	undo.Do(func(context.Context) error { h.forgetRemoved(e); return nil })

	p.Progress("preparing", rec.Image, 0, 0)
	img, let, err := h.p.Images.Use(ctx, rec.Image, image.Options{
		Mounts:   p.Mounts,
		Progress: func(done, total int64) { p.Progress("pulling", rec.Image, done, total) },
	})
	if err != nil {
		return Sandbox{}, err
	}
	e.change(func(sb *Sandbox) {
		sb.Root = img.Root
		sb.Warnings = append(sb.Warnings, img.Notes...)
		fillCommand(&sb.Command, img.Config)
	})
	let() // from here on the sandbox is seen to stand on it
	undo.Do(func(ctx context.Context) error { return h.remove(ctx, e) })
	if err := h.boot(ctx, e, p); err != nil {
		return Sandbox{}, err
	}
	if err := h.awaitReady(ctx, e, p); err != nil {
		if !p.KeepFailed || ctx.Err() != nil {
			return Sandbox{}, err
		}
		undo.Keep()
		return Sandbox{}, h.keep(e, err)
	}
	undo.Keep()
	p.Progress("ready", "", 0, 0)
	return e.view(), nil
}

// plan checks the request and makes the record of what is to be. Nothing is
// done yet.
func (h *Host) plan(p CreateParams) (record, error) {
	now := time.Now()
	sbID := id.NewSandbox()
	if p.Name == "" {
		p.Name, p.Ephemeral = string(sbID), true
	}
	name, err := id.ParseName("sandbox", p.Name)
	if err != nil {
		return record{}, err
	}
	sb := Sandbox{
		ID: sbID, Name: name, Driver: h.p.Driver.Name(), Runtime: h.p.Driver.Runtime(), State: sandbox.Provisioning,
		Image: p.Image, Mounts: p.Mounts, Shape: p.Shape, Command: p.Command, Labels: p.Labels,
		Ports: p.Ports, Services: p.Services, Forkable: !p.NotForkable,
		CreatedAt: now, IdleTimeout: p.IdleTimeout, Ephemeral: p.Ephemeral,
	}
	if sb.Image == "" {
		sb.Image = "host"
	}
	switch p.Network {
	case "", "none":
		sb.Network = "none"
	case "default":
		sb.Network = "none"
		sb.Warnings = append(sb.Warnings, "network: this brood gives sandboxes loopback only, so default means none")
	default:
		return record{}, errs.New(errs.Unsupported, "network %q is not supported: use none (loopback only)", p.Network)
	}
	if p.TTL < 0 || p.IdleTimeout < 0 {
		return record{}, errs.New(errs.InvalidArgument, "a time to live or idle timeout cannot be negative")
	}
	if p.TTL > 0 {
		sb.ExpiresAt = now.Add(p.TTL)
	}
	if p.OwnerPID != 0 {
		start, err := processStart(p.OwnerPID)
		if err != nil {
			return record{}, errs.New(errs.InvalidArgument, "owner process %d: %w", p.OwnerPID, err)
		}
		sb.Owner, sb.Ephemeral = &Owner{PID: p.OwnerPID, Start: start}, true
	}
	return record{Sandbox: sb, Magic: id.Random(proto.MagicSize)}, nil
}

// fillCommand takes from the image what the request leaves open.
func fillCommand(c *proto.Command, from image.Config) {
	if len(c.Argv) == 0 {
		c.Argv = from.Cmd
	}
	c.Env = append(append([]string{}, from.Env...), c.Env...)
	if c.Cwd == "" {
		c.Cwd = from.Workdir
	}
	if c.User == "" {
		c.User = from.User
	}
}

// boot starts the processes of a planned sandbox and its command.
func (h *Host) boot(ctx context.Context, e *entry, p CreateParams) error {
	release, err := h.slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	sb := e.view()
	p.Progress("booting", "", 0, 0)
	fs, err := h.openFiles(sb.ID)
	if err != nil {
		return home.DiskError(err, "folder of sandbox %s", sb.Name)
	}
	defer closeAll([]*os.File{fs.Diagnostics, fs.Log[0], fs.Log[1]})
	if err := h.save(e); err != nil {
		return err
	}
	ch, err := h.p.Driver.Start(ctx, sandbox.StartParams{
		ID: sb.ID, Root: sb.Root, Shape: sb.Shape, Hostname: string(sb.Name), Magic: e.magic(), Files: fs,
	})
	if err != nil {
		return fmt.Errorf("boot sandbox %s: %w", sb.Name, err)
	}
	g, err := h.connect(ctx, e, ch)
	if err != nil {
		return err
	}
	if err := h.identify(ctx, e, g, identity{uuid: newUUID()}); err != nil {
		return err
	}
	if places := protected(sb.Mounts); len(places) > 0 {
		if err := g.Protect(ctx, places...); err != nil {
			return fmt.Errorf("mounts of sandbox %s: %w", sb.Name, err)
		}
	}
	if len(sb.Command.Argv) > 0 {
		if _, err := g.Start(ctx, proto.StartArgs{Command: sb.Command}); err != nil {
			return fmt.Errorf("start the command of sandbox %s: %w", sb.Name, err)
		}
	}
	return h.running(e)
}

// connect speaks with the guest of a sandbox over a channel that is taken
// over.
func (h *Host) connect(ctx context.Context, e *entry, ch sandbox.Channel) (*guest.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, h.p.IdentityTimeout)
	defer cancel()
	magic, err := hex.DecodeString(e.magic())
	if err != nil {
		return nil, errors.Join(errs.New(errs.DataLoss, "channel of sandbox %s: %w", e.view().Name, err), ch.Close())
	}
	g, err := guest.Connect(ctx, ch, magic)
	if err != nil {
		return nil, fmt.Errorf("reach the guest program of sandbox %s: %w", e.view().Name, err)
	}
	e.mu.Lock()
	e.guest = g
	e.mu.Unlock()
	return g, nil
}

// running says that a sandbox runs, and begins to watch it.
func (h *Host) running(e *entry) error {
	e.change(func(sb *Sandbox) { sb.State = sandbox.Running })
	if err := h.save(e); err != nil {
		return err
	}
	h.watch(e)
	return nil
}

func (e *entry) magic() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rec.Magic
}

// keep leaves a sandbox that did not become ready as it is, for a look.
func (h *Host) keep(e *entry, why error) error {
	e.change(func(sb *Sandbox) { sb.Reason = "not ready: " + why.Error() })
	name := e.view().Name
	err := fmt.Errorf("%w (it is kept: look at it with `brood sb logs %s`, and remove it with `brood sb rm %s`)", why, name, name)
	return errors.Join(err, h.save(e))
}

// protected are the mounts that cannot be written, and those inside them that
// can: the layer that takes what a sandbox writes is over all of them, so that
// only the guest can keep writes away. Forks have what it did.
func protected(mounts []Mount) []proto.Place {
	sorted := slices.SortedFunc(slices.Values(mounts), func(a, b Mount) int { return strings.Compare(a.Target, b.Target) })
	var all []proto.Place
	for _, m := range sorted {
		inside := slices.ContainsFunc(all, func(p proto.Place) bool { return strings.HasPrefix(m.Target, p.Path+"/") })
		if m.ReadOnly || inside {
			all = append(all, proto.Place{Path: m.Target, ReadOnly: m.ReadOnly})
		}
	}
	return all
}
