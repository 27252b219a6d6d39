package launcher

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"brood/internal/base/errs"
	"brood/internal/sandbox/driver/gvisor/launch"
	"brood/runtime/internal/procs"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/sandbox"
	"gvisor.dev/gvisor/runsc/specutils"
)

// box is one container. Its mutex is held over gVisor's calls; what lists and
// waits need is under view, which is held for moments only.
type box struct {
	id string

	mu sync.Mutex
	c  *container.Container // nil while made, when its state cannot be read, or when destroyed
	// conf is nil for a loaded container that was not created by this launcher
	// until it is needed.
	conf *config.Config

	view  sync.Mutex
	state launch.Status
	exit  *launch.Exit
	pid   int // sandbox process, in the holder's namespace
	gofer int
	ended chan struct{} // closed when exit is known, or the box is destroyed
}

func newBox(id string, state launch.Status) *box {
	return &box{id: id, state: state, ended: make(chan struct{})}
}

func (b *box) set(state launch.Status) {
	b.view.Lock()
	b.state = state
	b.view.Unlock()
}

// end records how the container ended; the first word counts.
func (b *box) end(exit launch.Exit) {
	b.view.Lock()
	defer b.view.Unlock()
	if b.exit == nil {
		b.exit = &exit
		b.state = launch.Stopped
		close(b.ended)
	}
}

func (b *box) setContainer(c *container.Container) {
	b.c = c
	b.view.Lock()
	defer b.view.Unlock()
	b.pid, b.gofer = c.Sandbox.Getpid(), c.GoferPid.Load()
}

// describe returns the container as it is now.
func (b *box) describe() launch.Container {
	b.view.Lock()
	defer b.view.Unlock()
	out := launch.Container{ID: b.id, Status: b.state, Exit: b.exit}
	if b.state == launch.Created && b.pid != 0 && !procs.Alive(b.pid) {
		// Nobody waits for a container that never ran.
		out.Status = launch.Stopped
	}
	if out.Status != launch.Stopped {
		out.PID, out.GoferPID = procs.HostPID(hostProcFD, b.pid), procs.HostPID(hostProcFD, b.gofer)
	}
	return out
}

// create makes a container up to gVisor's state created.
func (l *Launcher) create(p *launch.Create, files []*os.File) (*os.File, error) {
	b := newBox(p.ID, launch.Unknown)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := l.reserve(b); err != nil {
		return nil, err
	}
	ours, err := l.createIn(b, p, files)
	if err == nil {
		return ours, nil
	}
	if cerr := l.remove(b); cerr != nil {
		// The box stays listed as unknown, so that destroy can try again.
		return nil, errors.Join(err, cerr)
	}
	return nil, err
}

func (l *Launcher) createIn(b *box, p *launch.Create, files []*os.File) (ours *os.File, err error) {
	var imageFile *os.File
	if p.Root.EROFS != "" {
		imageFile, files = files[0], files[1:]
	}
	root, err := l.roots.use(p.ID, p.Root, imageFile)
	if err != nil {
		return nil, err
	}
	if b.conf, err = newConfig(p.DebugDir); err != nil {
		return nil, err
	}
	bundle := bundleDir(p.ID)
	if err := writeBundle(bundle, newSpec(p, root)); err != nil {
		return nil, err
	}
	// gVisor's helpers have read it when New returns.
	defer func() { _ = os.RemoveAll(bundle) }()
	// New changes the description it gets; the helpers read the file.
	spec, err := specutils.ReadSpec(bundle, b.conf)
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, "container %s: %w", p.ID, err)
	}
	ours, theirs, err := channelPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	defer func() {
		if err != nil {
			_ = ours.Close()
		}
	}()
	if err := l.store.Put(p.ID, ours); err != nil {
		return nil, err
	}
	if err := keepFromChildren(); err != nil {
		return nil, fmt.Errorf("container %s: %w", p.ID, err)
	}
	c, err := container.New(b.conf, container.Args{
		ID:        p.ID,
		Spec:      spec,
		BundleDir: bundle,
		PassFiles: guestFiles(theirs, files),
	})
	if err != nil {
		return nil, fmt.Errorf("container %s: create: %w", p.ID, err)
	}
	b.setContainer(c)
	b.set(launch.Created)
	return ours, nil
}

// guestFiles numbers the guest's descriptors. Standard input and output are
// passed like the rest instead of through this process's own, which gVisor
// takes otherwise, so that containers can be made at the same time.
func guestFiles(channel *os.File, files []*os.File) map[int]*os.File {
	m := map[int]*os.File{3: channel}
	for i, f := range files {
		if i > 2 {
			i++
		}
		m[i] = f
	}
	return m
}

// channelPair returns the host's end, ready for a poller, and the guest's.
func channelPair() (ours, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make channel: %w", err)
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return nil, nil, fmt.Errorf("make channel: %w", err)
	}
	return os.NewFile(uintptr(pair[0]), "channel"), os.NewFile(uintptr(pair[1]), "guest's channel"), nil
}

// startBox starts or restores a created container. While it happens a marker lies
// in the state directory: gVisor's own state says created until it is over.
func (l *Launcher) startBox(id string, run func(*box) error) error {
	b, err := l.find(id)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.require("started", launch.Created); err != nil {
		return err
	}
	mark := markerPath(id)
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return fmt.Errorf("container %s: mark: %w", id, err)
	}
	if err := run(b); err != nil {
		b.set(launch.Unknown)
		return err
	}
	b.set(launch.Running)
	l.watch(b)
	if err := os.Remove(mark); err != nil {
		return fmt.Errorf("container %s: unmark: %w", id, err)
	}
	return nil
}

func (l *Launcher) start(id string) error {
	return l.startBox(id, func(b *box) error {
		if err := b.c.Start(b.conf); err != nil {
			return fmt.Errorf("container %s: start: %w", id, err)
		}
		return nil
	})
}

func (l *Launcher) restore(id, name string, dir *os.File) error {
	return l.startBox(id, func(b *box) error {
		if err := b.c.Restore(b.conf, throughFD(dir), false, false); err != nil {
			return fmt.Errorf("container %s: restore from %s: %w", id, name, err)
		}
		return nil
	})
}

// checkpoint saves a running container; it goes on.
func (l *Launcher) checkpoint(id, name string, file *os.File) error {
	dir := throughFD(file)
	b, err := l.find(id)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.require("saved", launch.Running); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return errs.New(errs.FailedPrecondition, "checkpoint directory %s: %w", name, err)
	}
	if len(entries) > 0 {
		return errs.New(errs.FailedPrecondition, "checkpoint directory %s is not empty", name)
	}
	err = b.c.Checkpoint(b.conf, dir, sandbox.CheckpointOpts{Compression: statefile.CompressionLevelNone, Resume: true})
	if err == nil {
		err = checkImage(dir)
	}
	if err != nil {
		empty(dir)
		return fmt.Errorf("container %s: checkpoint: %w", id, err)
	}
	return nil
}

// throughFD is a path to an open file or directory.
func throughFD(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// require reports whether the container is in the state for what is asked.
// The box is locked.
func (b *box) require(what string, want launch.Status) error {
	got := b.describe().Status
	switch {
	case got == launch.Unknown:
		return errs.New(errs.FailedPrecondition, "container %s cannot be %s: an earlier request did not end; destroy it", b.id, what)
	case got != want || b.c == nil:
		return errs.New(errs.FailedPrecondition, "container %s cannot be %s: it is %s, not %s", b.id, what, got, want)
	}
	if b.conf == nil {
		conf, err := newConfig("")
		if err != nil {
			return err
		}
		b.conf = conf
	}
	return nil
}

// watch learns how the container ends. It is called with the box locked, right
// after it began to run or was loaded: gVisor tells the status only to who
// asked before.
func (l *Launcher) watch(b *box) {
	sb, gofer := b.c.Sandbox, &b.c.GoferPid
	l.group.Go(func() {
		status, err := sb.Wait(b.id)
		if err != nil {
			b.end(launch.Exit{})
		} else {
			b.end(exitOf(status))
		}
		// The file server ends with the sandbox. When it is this process's
		// child nobody else reaps it before the container is destroyed.
		if pid := gofer.Load(); pid != 0 {
			if got, err := unix.Wait4(pid, nil, 0, nil); err == nil && got == pid {
				gofer.Store(0)
			}
		}
	})
}

func exitOf(ws unix.WaitStatus) launch.Exit {
	if ws.Signaled() {
		return launch.Exit{Known: true, Code: 128 + int(ws.Signal()), Signal: int(ws.Signal())}
	}
	return launch.Exit{Known: true, Code: ws.ExitStatus()}
}

// destroy ends a container in whatever state it is. Its processes are killed
// before its mutex is taken, which ends a call that hangs.
func (l *Launcher) destroy(id string) error {
	b, err := l.find(id)
	if errs.Is(err, errs.NotFound) {
		b = newBox(id, launch.Unknown)
		b.mu.Lock()
		defer b.mu.Unlock()
		if err := l.reserve(b); err != nil {
			return l.destroy(id) // it was made in this moment
		}
		return l.remove(b)
	}
	if err != nil {
		return err
	}
	b.view.Lock()
	pid := b.pid
	procs.Kill(pid, procs.IsSandbox(id))
	b.view.Unlock()
	if pid == 0 { // it is being made, and that may stand still
		procs.KillStarting(id)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return l.remove(b)
}

// remove takes away all that a container holds and forgets it. The box is
// locked. It can be called again when it failed.
func (l *Launcher) remove(b *box) error {
	if b.c != nil {
		if err := destroyContainer(b.c); err != nil {
			return fmt.Errorf("container %s: destroy: %w", b.id, err)
		}
		b.c = nil
	}
	if err := procs.KillAll(b.id, bundleDir(b.id)); err != nil {
		return fmt.Errorf("container %s: destroy: %w", b.id, err)
	}
	for _, path := range leftovers(b.id) {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("container %s: destroy: %w", b.id, err)
		}
	}
	l.roots.release(b.id)
	if err := l.store.Drop(b.id); err != nil {
		return fmt.Errorf("container %s: destroy: %w", b.id, err)
	}
	b.end(launch.Exit{})
	l.forget(b)
	return nil
}

// destroyContainer calls gVisor's Destroy. It signals process numbers from the
// state file without asking whose they are by now, and polls slowly for
// processes that are not its children; both are settled before.
func destroyContainer(c *container.Container) error {
	if c.Sandbox != nil {
		if pid := c.Sandbox.Pid.Load(); pid != 0 && !procs.KillAndWait(pid, procs.IsSandbox(c.ID)) {
			c.Sandbox.Pid.Store(0)
		}
	}
	if pid := c.GoferPid.Load(); pid != 0 && !procs.KillAndWait(pid, procs.IsGofer(bundleDir(c.ID))) {
		c.GoferPid.Store(0)
	}
	return c.Destroy()
}

// leftovers are the files of a container in the state directory.
func leftovers(id string) []string {
	name := fmt.Sprintf("%s_sandbox:%s", id, id)
	return []string{
		filepath.Join(stateRoot, name+".state"),
		filepath.Join(stateRoot, name+".lock"),
		filepath.Join(stateRoot, "runsc-"+id+".sock"),
		bundleDir(id),
		markerPath(id),
	}
}

func bundleDir(id string) string  { return filepath.Join(stateRoot, "bundle-"+id) }
func markerPath(id string) string { return filepath.Join(stateRoot, "starting-"+id) }

// checkImage looks at what gVisor wrote: on a full disk it can end with
// success and an image cut short.
func checkImage(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return errors.New("gVisor wrote no image")
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Size() == 0 && e.Name() == "checkpoint.img" {
			return errs.New(errs.DataLoss, "gVisor wrote an empty %s", e.Name())
		}
	}
	return nil
}

// empty removes what a failed checkpoint left. The sandbox may have files of it
// open until it collects garbage: what they take is free at once.
func empty(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		_ = os.Truncate(path, 0)
		_ = os.Remove(path)
	}
}

// asUnix is the connection below a listener's Accept.
func asUnix(c net.Conn) (*net.UnixConn, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.New("connection is no Unix socket")
	}
	return u, nil
}
