package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"brood/internal/base/errs"
	"brood/internal/sandbox/driver/gvisor/launch"
	"brood/runtime/internal/procs"

	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/container"
)

// load takes over what earlier launchers left: sandboxes with a state file are
// kept, anything else (processes, files, channels of requests that were never
// answered) is removed.
func (l *Launcher) load() error {
	for _, name := range []string{imagesName, emptyName} {
		if err := os.Mkdir(filepath.Join(stateRoot, name), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	ids, err := container.ListSandboxes(stateRoot)
	if err != nil {
		return err
	}
	for _, id := range ids {
		b := l.loadBox(id)
		l.boxes[b.id] = b
	}
	return l.sweep()
}

// loadBox reads one state file. What cannot be read, or was being started when
// the launcher died, is unknown.
func (l *Launcher) loadBox(id container.FullID) *box {
	b := newBox(id.SandboxID, launch.Unknown)
	b.mu.Lock()
	defer b.mu.Unlock()
	c, err := loadContainer(id)
	if err != nil {
		return b
	}
	l.roots.adopt(b.id, c.Spec.Root.Path, c.Spec.Annotations[boot.RootfsPrefix+"source"])
	pid := c.Sandbox.Pid.Load()
	if !procs.IsSandbox(b.id)(procs.CommandLine(pid)) {
		// It ended, and the number is nobody's or a stranger's.
		c.Sandbox.Pid.Store(0)
		c.GoferPid.Store(0)
		b.c = c
		b.end(launch.Exit{})
		return b
	}
	b.setContainer(c)
	_, err = os.Lstat(markerPath(b.id))
	marked := err == nil
	switch {
	case c.Status == container.Running:
		if marked {
			_ = os.Remove(markerPath(b.id))
		}
		b.set(launch.Running)
		l.watch(b)
	case c.Status == container.Created && !marked:
		b.set(launch.Created)
	}
	return b
}

// loadContainer calls gVisor's Load, which does not expect a file cut short.
func loadContainer(id container.FullID) (c *container.Container, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("state of %s is damaged: %v", id.SandboxID, r)
		}
	}()
	c, err = container.Load(stateRoot, id, container.LoadOpts{Exact: true, SkipCheck: true, TryLock: container.TryAcquire})
	if err == nil && (c.Sandbox == nil || c.Spec == nil || c.Spec.Root == nil) {
		err = fmt.Errorf("state of %s is damaged", id.SandboxID)
	}
	return c, err
}

// sweep removes what belongs to no loaded container.
func (l *Launcher) sweep() error {
	stray := procs.SandboxIDs()
	names, err := l.store.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		stray[name] = true
	}
	entries, err := os.ReadDir(stateRoot)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if id := idOfFile(e.Name()); id != "" {
			stray[id] = true
		}
	}
	var failed error
	for id := range stray {
		if l.boxes[id] != nil || launch.ValidateID(id) != nil {
			continue
		}
		b := newBox(id, launch.Unknown)
		b.mu.Lock()
		l.boxes[id] = b
		failed = errors.Join(failed, l.remove(b))
		b.mu.Unlock()
	}
	return failed
}

// idOfFile returns the container that a file of the state directory is of.
func idOfFile(name string) string {
	for _, ends := range []struct{ head, tail string }{
		{"runsc-", ".sock"}, {"bundle-", ""}, {"starting-", ""},
	} {
		if rest, ok := strings.CutPrefix(name, ends.head); ok {
			if id, ok := strings.CutSuffix(rest, ends.tail); ok {
				return id
			}
		}
	}
	if id, _, ok := strings.Cut(name, "_sandbox:"); ok {
		return id
	}
	return ""
}

// reserve enters a new box; its name must be free.
func (l *Launcher) reserve(b *box) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.boxes[b.id] != nil {
		return errs.New(errs.AlreadyExists, "container %s exists already", b.id)
	}
	l.boxes[b.id] = b
	return nil
}

func (l *Launcher) find(id string) (*box, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.boxes[id]; b != nil {
		return b, nil
	}
	return nil, errs.New(errs.NotFound, "there is no container %s", id)
}

func (l *Launcher) forget(b *box) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.boxes[b.id] == b {
		delete(l.boxes, b.id)
	}
}
