//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
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
		run: func(ctx context.Context, c *launch.Client) error { return c.Start(ctx, string(p.ID)) },
	})
}

// Restore makes a sandbox go on from what Capture saved.
func (d *Driver) Restore(ctx context.Context, p sandbox.RestoreParams) (sandbox.Channel, error) {
	return d.begin(ctx, beginParams{
		id: p.ID, runtime: p.Runtime, root: p.Root, magic: p.Magic, hostname: p.Hostname, files: p.Files,
		run: func(ctx context.Context, c *launch.Client) error {
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
	run      func(context.Context, *launch.Client) error
}

// createLimit bounds making a container when its caller is gone already.
const createLimit = time.Minute

// begin makes a sandbox. When the launcher dies meanwhile, which costs nobody
// but the request its life, it is made once more by the next one.
func (d *Driver) begin(ctx context.Context, p beginParams) (sandbox.Channel, error) {
	ch, err := d.tryBegin(ctx, p)
	if errs.Is(err, errs.Unavailable) && ctx.Err() == nil {
		ch, err = d.tryBegin(ctx, p)
	}
	return ch, err
}

// tryBegin creates a container and runs it; whatever fails, nothing of it
// stays.
func (d *Driver) tryBegin(ctx context.Context, p beginParams) (_ sandbox.Channel, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := d.launcher(ctx, p.runtime)
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	// Not given up with its caller: a container made by a request that nobody
	// waits for would come after the Destroy that should remove it.
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), createLimit)
	defer cancel()
	file, err := c.Create(patient, launch.Create{
		ID: string(p.id), Root: rootOf(p.root), Hostname: p.hostname,
		Argv:  []string{GuestPath, "init"},
		Env:   []string{"BROOD_GUEST_MAGIC=" + p.magic},
		Files: []*os.File{null, p.files.Diagnostics, p.files.Diagnostics, p.files.Log[0], p.files.Log[1]},
	})
	if errs.Is(err, errs.AlreadyExists) || errs.Is(err, errs.InvalidArgument) {
		return nil, err // nothing was made, and what is there is another's
	}
	d.remember(p.id, p.runtime)
	if err == nil {
		if err = errors.Join(ctx.Err(), p.run(ctx, c)); err == nil {
			return pollable(file)
		}
		err = errors.Join(err, file.Close())
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), life.UndoLimit)
	defer cancel()
	return nil, errors.Join(err, d.Destroy(clean, p.id))
}

// Capture saves a sandbox into dir.
func (d *Driver) Capture(ctx context.Context, sb id.Sandbox, dir string) error {
	return d.ask(ctx, sb, func(c *launch.Client) error {
		return c.Checkpoint(ctx, launch.Checkpoint{ID: string(sb), Dir: dir})
	})
}

// Channel returns one more handle of the channel.
func (d *Driver) Channel(ctx context.Context, sb id.Sandbox) (sandbox.Channel, error) {
	var file *os.File
	err := d.ask(ctx, sb, func(c *launch.Client) (err error) {
		file, err = c.Channel(ctx, string(sb))
		return err
	})
	if err != nil {
		return nil, err
	}
	return pollable(file)
}

// Destroy ends a sandbox; one that is not there is no error.
func (d *Driver) Destroy(ctx context.Context, sb id.Sandbox) error {
	err := d.ask(ctx, sb, func(c *launch.Client) error { return c.Destroy(ctx, string(sb)) })
	if err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	d.forget(sb)
	return nil
}

// Wait returns when the sandbox has ended.
func (d *Driver) Wait(ctx context.Context, sb id.Sandbox) error {
	return d.ask(ctx, sb, func(c *launch.Client) error {
		_, err := c.Wait(ctx, string(sb))
		return err
	})
}

// List asks every launcher that runs.
func (d *Driver) List(ctx context.Context) ([]sandbox.Live, error) {
	var all []sandbox.Live
	runtimes, err := d.inUse()
	if err != nil {
		return nil, err
	}
	for _, rt := range runtimes {
		containers, err := d.containers(ctx, rt)
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

// containers are those of one runtime: none when its holder has ended, and
// with it everything it had.
func (d *Driver) containers(ctx context.Context, rt id.Runtime) ([]launch.Container, error) {
	c, err := d.running(ctx, rt)
	if err == nil {
		var all []launch.Container
		if all, err = c.List(ctx); err == nil {
			return all, nil
		}
	}
	if errs.Is(err, errs.Unavailable) && d.ended(ctx, rt) {
		return nil, nil
	}
	return nil, err
}

// Close ends the launchers that have nothing left to run.
func (d *Driver) Close(ctx context.Context) error {
	runtimes, err := d.inUse()
	if err != nil {
		return err
	}
	var all error
	for _, rt := range runtimes {
		all = errors.Join(all, d.letGo(ctx, rt))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.launchers {
		if l.client != nil {
			all = errors.Join(all, l.client.Close())
		}
	}
	d.launchers = map[id.Runtime]*launcher{}
	return all
}

// End ends every sandbox that this driver has had to do with, and the
// runtime's processes, at once and without looking at a file: what is left to
// do when the home is gone.
func (d *Driver) End(ctx context.Context) error {
	d.mu.Lock()
	launchers := d.launchers
	d.launchers = map[id.Runtime]*launcher{}
	d.mu.Unlock()
	var all error
	for _, l := range launchers {
		l.mu.Lock()
		c := l.client
		l.mu.Unlock()
		if c != nil {
			all = errors.Join(all, c.Kill(ctx))
		}
	}
	return all
}

// letGo ends one launcher and its holder when they have nothing, and removes
// their folder.
func (d *Driver) letGo(ctx context.Context, rt id.Runtime) error {
	release, err := d.lock(ctx, rt)
	if err != nil {
		return err
	}
	defer release()
	c, err := d.running(ctx, rt)
	if err == nil {
		err = c.Stop(ctx, false)
	}
	switch {
	case errs.Is(err, errs.FailedPrecondition):
		return nil // it has something
	case errs.Is(err, errs.Unavailable) && d.ended(ctx, rt), err == nil:
		return os.RemoveAll(d.dir(rt))
	}
	return err
}

// lock makes the caller the only one, of all processes, that starts or ends a
// runtime's holder.
func (d *Driver) lock(ctx context.Context, rt id.Runtime) (release func(), err error) {
	f := flock.New(d.dir(rt)+".lock", flock.SetPermissions(0o600))
	if _, err := f.TryLockContext(ctx, lockPatience); err != nil {
		return nil, fmt.Errorf("lock the runtime in %s: %w", d.dir(rt), err)
	}
	return func() { _ = f.Close() }, nil // the file stays: two could hold two locks of one name
}

// lockPatience is how long to wait between two looks at a lock.
const lockPatience = 5 * time.Millisecond

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

// ask lets f ask the launcher that has a sandbox. NotFound when none has, and
// when its holder has ended, because everything in it has too.
func (d *Driver) ask(ctx context.Context, sb id.Sandbox, f func(*launch.Client) error) error {
	rt, err := d.of(ctx, sb)
	if err != nil {
		return err
	}
	c, err := d.running(ctx, rt)
	if err == nil {
		err = f(c)
	}
	if errs.Is(err, errs.Unavailable) && d.ended(ctx, rt) {
		d.forget(sb)
		return errs.New(errs.NotFound, "the runtime that had sandbox %s has ended: %w", sb, err)
	}
	return err
}

// of returns the runtime that has a sandbox, NotFound when none has.
func (d *Driver) of(ctx context.Context, sb id.Sandbox) (id.Runtime, error) {
	known := func() (id.Runtime, bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		rt, ok := d.where[sb]
		return rt, ok
	}
	if rt, ok := known(); ok {
		return rt, nil
	}
	if _, err := d.List(ctx); err != nil {
		return "", err
	}
	if rt, ok := known(); ok {
		return rt, nil
	}
	return "", errs.New(errs.NotFound, "no launcher has sandbox %s", sb)
}

func (d *Driver) remember(sb id.Sandbox, rt id.Runtime) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.where[sb] = rt
}

func (d *Driver) forget(sb id.Sandbox) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.where, sb)
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

// running returns the client of a runtime's launcher without starting one:
// Unavailable when none runs. A client is good for every launcher in its
// folder, so it stays when launcher or holder are replaced.
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
// The holder has the launcher's socket: nobody there means no holder, while
// one that does not answer is a launcher that dies.
func (d *Driver) ended(ctx context.Context, rt id.Runtime) bool {
	c, err := launch.Dial(ctx, d.dir(rt))
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// launcher returns the client of a runtime's launcher, which is started when
// none runs.
func (d *Driver) launcher(ctx context.Context, rt id.Runtime) (*launch.Client, error) {
	if c, err := d.running(ctx, rt); err == nil {
		if _, err := c.Info(ctx); !errs.Is(err, errs.Unavailable) {
			return c, err
		}
	}
	path := d.p.Path(rt)
	if _, err := os.Stat(path); err != nil {
		return nil, errs.New(errs.FailedPrecondition, "runtime %s is not here: copy it from where the checkpoint was made (%w)", rt, err)
	}
	release, err := d.lock(ctx, rt)
	if err != nil {
		return nil, err
	}
	defer release()
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
