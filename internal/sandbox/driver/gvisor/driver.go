//go:build linux

package gvisor

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
	"brood/internal/sandbox"
	"brood/internal/sandbox/driver/gvisor/launch"
)

// Name is the driver's word in records and on the wire.
const Name = "gvisor"

// GuestPath is where the guest program lies in every root.
const GuestPath = "/.brood/bin/brood-guest"

// Params say what a Driver works with.
type Params struct {
	Home    *home.Home
	Runtime id.Runtime // for new sandboxes
	// Path returns where a runtime's program lies; it may not be there.
	Path func(id.Runtime) string
	// Log gets what launchers say; nil drops it.
	Log *os.File
}

// Driver implements sandbox.Driver.
type Driver struct {
	p Params

	mu        sync.Mutex // guards what follows; never held over I/O
	launchers map[id.Runtime]*launcher
	where     map[id.Sandbox]id.Runtime
}

// launcher is the connection to one runtime's launcher, made once.
type launcher struct {
	mu     sync.Mutex // held while connecting, so that it is done once
	client *launch.Client
}

var _ sandbox.Driver = (*Driver)(nil)

// New returns a driver; nothing is started before it is needed.
func New(p Params) *Driver {
	return &Driver{p: p, launchers: map[id.Runtime]*launcher{}, where: map[id.Sandbox]id.Runtime{}}
}

// Name returns "gvisor".
func (d *Driver) Name() string { return Name }

// Runtime returns the runtime that new sandboxes are made with.
func (d *Driver) Runtime() id.Runtime { return d.p.Runtime }

// Start boots a sandbox.
func (d *Driver) Start(ctx context.Context, p sandbox.StartParams) (sandbox.Channel, error) {
	return d.begin(ctx, beginParams{
		id: p.ID, runtime: d.p.Runtime, root: p.Root, magic: p.Magic, hostname: p.Hostname, files: p.Files,
		run: func(c *launch.Client) error { return c.Start(ctx, string(p.ID)) },
	})
}

// Restore makes a sandbox go on from what Capture saved.
func (d *Driver) Restore(ctx context.Context, p sandbox.RestoreParams) (sandbox.Channel, error) {
	return d.begin(ctx, beginParams{
		id: p.ID, runtime: p.Runtime, root: p.Root, magic: p.Magic, hostname: p.Hostname, files: p.Files,
		run: func(c *launch.Client) error {
			return c.Restore(ctx, launch.Restore{ID: string(p.ID), ImageDir: p.Dir})
		},
	})
}

type beginParams struct {
	id       id.Sandbox
	runtime  id.Runtime
	root     sandbox.Root
	magic    string
	hostname string
	files    sandbox.Files
	run      func(*launch.Client) error
}

// begin creates a container and runs it; whatever fails, nothing of it stays.
func (d *Driver) begin(ctx context.Context, p beginParams) (_ sandbox.Channel, err error) {
	c, err := d.launcher(ctx, p.runtime)
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	d.remember(p.id, p.runtime)
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Destroy(context.WithoutCancel(ctx), p.id))
		}
	}()
	create := launch.Create{
		ID: string(p.id), Root: rootOf(p.root), Hostname: p.hostname,
		Argv:  []string{GuestPath, "init"},
		Env:   []string{"BROOD_GUEST_MAGIC=" + p.magic},
		Files: []*os.File{null, p.files.Diagnostics, p.files.Diagnostics, p.files.Log[0], p.files.Log[1]},
	}
	file, err := c.Create(ctx, create)
	if errs.Is(err, errs.Unavailable) && d.ended(ctx, p.runtime) {
		if c, err = d.launcher(ctx, p.runtime); err == nil {
			file, err = c.Create(ctx, create)
		}
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	if err := p.run(c); err != nil {
		return nil, err
	}
	return pollable(file)
}

// Capture saves a sandbox into dir.
func (d *Driver) Capture(ctx context.Context, sb id.Sandbox, dir string) error {
	c, err := d.of(ctx, sb)
	if err != nil {
		return err
	}
	return c.Checkpoint(ctx, launch.Checkpoint{ID: string(sb), Dir: dir})
}

// Channel returns one more handle of the channel.
func (d *Driver) Channel(ctx context.Context, sb id.Sandbox) (sandbox.Channel, error) {
	c, err := d.of(ctx, sb)
	if err != nil {
		return nil, err
	}
	file, err := c.Channel(ctx, string(sb))
	if err != nil {
		return nil, err
	}
	return pollable(file)
}

// Destroy ends a sandbox; one that is not there is no error.
func (d *Driver) Destroy(ctx context.Context, sb id.Sandbox) error {
	c, err := d.of(ctx, sb)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	err = c.Destroy(ctx, string(sb))
	d.mu.Lock()
	rt := d.where[sb]
	d.mu.Unlock()
	if errs.Is(err, errs.Unavailable) && d.ended(ctx, rt) {
		err = nil // it ended with its holder
	}
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.where, sb)
	}
	return err
}

// Wait returns when the sandbox has ended.
func (d *Driver) Wait(ctx context.Context, sb id.Sandbox) error {
	c, err := d.of(ctx, sb)
	if err != nil {
		return err
	}
	_, err = c.Wait(ctx, string(sb))
	return err
}

// List asks every launcher that runs.
func (d *Driver) List(ctx context.Context) ([]sandbox.Live, error) {
	var all []sandbox.Live
	runtimes, err := d.inUse()
	if err != nil {
		return nil, err
	}
	for _, rt := range runtimes {
		c, err := d.running(ctx, rt)
		if errs.Is(err, errs.Unavailable) {
			continue // its holder ended, and with it everything it had
		}
		if err != nil {
			return nil, err
		}
		containers, err := c.List(ctx)
		if err != nil {
			return nil, err
		}
		for _, one := range containers {
			sb := id.Sandbox(one.ID)
			d.remember(sb, rt)
			all = append(all, sandbox.Live{ID: sb, Running: one.Status == launch.Running})
		}
	}
	return all, nil
}

// Close ends the launchers that have nothing left to run.
func (d *Driver) Close(ctx context.Context) error {
	runtimes, err := d.inUse()
	if err != nil {
		return err
	}
	var all error
	for _, rt := range runtimes {
		c, err := d.running(ctx, rt)
		if errs.Is(err, errs.Unavailable) {
			all = errors.Join(all, os.RemoveAll(d.dir(rt)))
			continue
		}
		if err != nil {
			all = errors.Join(all, err)
			continue
		}
		containers, err := c.List(ctx)
		if err == nil && len(containers) == 0 {
			if err = c.Stop(ctx, false); err == nil {
				err = os.RemoveAll(d.dir(rt))
			}
		}
		all = errors.Join(all, err, c.Close())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.launchers = map[id.Runtime]*launcher{}
	return all
}

// dir is a runtime's run folder. Its name is short: sockets of sandboxes lie
// below it and their addresses hold 108 bytes.
func (d *Driver) dir(rt id.Runtime) string {
	return filepath.Join(d.p.Home.Run(), string(rt[:min(len(rt), 32)]))
}

// inUse returns the runtimes that have a run folder.
func (d *Driver) inUse() ([]id.Runtime, error) {
	entries, err := os.ReadDir(d.p.Home.Run())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []id.Runtime
	for _, e := range entries {
		if e.IsDir() && id.Plain(e.Name()) {
			all = append(all, id.Runtime(e.Name()))
		}
	}
	return all, nil
}

// of returns the launcher that has a sandbox, NotFound when none has.
func (d *Driver) of(ctx context.Context, sb id.Sandbox) (*launch.Client, error) {
	d.mu.Lock()
	rt, known := d.where[sb]
	d.mu.Unlock()
	if !known {
		if _, err := d.List(ctx); err != nil {
			return nil, err
		}
		d.mu.Lock()
		rt, known = d.where[sb]
		d.mu.Unlock()
	}
	if !known {
		return nil, errs.New(errs.NotFound, "no launcher has sandbox %s", sb)
	}
	c, err := d.running(ctx, rt)
	if errs.Is(err, errs.Unavailable) {
		return nil, errs.New(errs.NotFound, "the runtime that had sandbox %s has ended: %w", sb, err)
	}
	return c, err
}

func (d *Driver) remember(sb id.Sandbox, rt id.Runtime) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.where[sb] = rt
}

// slot returns the place of a runtime's connection.
func (d *Driver) slot(rt id.Runtime) *launcher {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, ok := d.launchers[rt]
	if !ok {
		l = &launcher{}
		d.launchers[rt] = l
	}
	return l
}

// running connects to a runtime's launcher without starting one: Unavailable
// when none runs.
func (d *Driver) running(ctx context.Context, rt id.Runtime) (*launch.Client, error) {
	l := d.slot(rt)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client != nil {
		return l.client, nil
	}
	c, err := launch.Dial(ctx, d.dir(rt))
	if err != nil {
		return nil, err
	}
	l.client = c
	return c, nil
}

// ended reports whether a runtime's holder is gone, and with it all it had.
// The holder has the launcher's socket, so that nobody there means no holder.
func (d *Driver) ended(ctx context.Context, rt id.Runtime) bool {
	c, err := launch.Dial(ctx, d.dir(rt))
	if err == nil {
		_ = c.Close()
		return false
	}
	l := d.slot(rt)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client = nil
	return errs.Is(err, errs.Unavailable)
}

// launcher connects to a runtime's launcher, starting it when none runs.
func (d *Driver) launcher(ctx context.Context, rt id.Runtime) (*launch.Client, error) {
	if c, err := d.running(ctx, rt); err == nil {
		return c, nil
	}
	path := d.p.Path(rt)
	if _, err := os.Stat(path); err != nil {
		return nil, errs.New(errs.FailedPrecondition, "runtime %s is not here: copy it from where the checkpoint was made (%w)", rt, err)
	}
	if err := launch.StartHolder(ctx, launch.StartParams{RuntimePath: path, Dir: d.dir(rt), Log: d.p.Log}); err != nil {
		return nil, err
	}
	return d.running(ctx, rt)
}

func rootOf(r sandbox.Root) launch.Root {
	if r.Host == nil {
		return launch.Root{EROFS: r.EROFS}
	}
	h := &launch.HostRoot{Dir: r.Host.Dir}
	for _, b := range r.Host.Binds {
		h.Binds = append(h.Binds, launch.Bind(b))
	}
	return launch.Root{Host: h}
}

// pollable makes a socket's Read end when it is closed.
func pollable(f *os.File) (sandbox.Channel, error) {
	conn, err := net.FileConn(f) // has a descriptor of its own
	return conn, errors.Join(err, f.Close())
}
