package runs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/edge/cli"
	"brood/internal/run"
	"brood/internal/run/cache/files"
	"brood/internal/run/cache/key"
	"brood/internal/run/graph"
	"brood/internal/run/orchestrator"
	"brood/internal/run/workspace"
)

// session is a workspace with what was selected in it.
type session struct {
	dir     string
	ws      *workspace.Workspace
	environ []string
	sel     graph.Selection
	graph   *graph.Graph
	cached  Shared
}

// openRun reads the workspace that the flags say.
func openRun(f runFlags) (*session, error) {
	dir, err := f.dir()
	if err != nil {
		return nil, err
	}
	ws, err := workspace.Open(dir)
	if err != nil {
		return nil, faulty(err)
	}
	if f.envMode != "" {
		ws.Globals.EnvMode = f.envMode
	}
	s := &session{dir: dir, ws: ws, environ: os.Environ(), sel: f.Selection}
	s.sel.Dir, s.sel.Environ = dir, s.environ
	return s, nil
}

// dir is the folder to be in, with links resolved as the workspace resolves
// its root.
func (f *runFlags) dir() (string, error) {
	dir, err := cli.Absolute(f.cwd)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real, nil
	}
	return dir, nil
}

// build selects the tasks.
func (s *session) build(ctx context.Context, f runFlags) error {
	var err error
	s.graph, err = graph.Build(ctx, s.ws, s.sel)
	return faulty(err)
}

// faulty makes what cannot be run as it is written, in files or on the command
// line, a fault of the arguments.
func faulty(err error) error {
	if errs.Is(err, errs.FailedPrecondition) {
		return errs.New(errs.InvalidArgument, "%w", err)
	}
	return err
}

func (s *session) warnings() []string {
	return append(append([]string(nil), s.ws.Warnings...), s.graph.Warnings...)
}

// keys derive the tasks' keys from the workspace's files, and keep what they
// were made of for the history.
type keys struct {
	keyer *key.Keyer

	mu    sync.Mutex // guards parts
	parts map[id.Task]*key.Parts
}

func (s *session) newKeys(ctx context.Context, snapshot *files.Snapshot, lock *key.Lockfile) (*keys, error) {
	projects := map[id.Project][]*run.Task{}
	for _, t := range s.graph.Tasks {
		projects[t.Project] = append(projects[t.Project], t)
	}
	keyer, err := key.New(ctx, key.Config{
		Files: snapshot, Manager: s.ws.Manager, Lockfile: s.ws.Lockfile, Read: lock, Globals: s.ws.Globals, Environ: s.environ, Task: s.graph.Task,
		Beside: func(p id.Project) []*run.Task { return projects[p] },
	})
	if err != nil {
		return nil, err
	}
	return &keys{keyer: keyer, parts: make(map[id.Task]*key.Parts, len(s.graph.Tasks))}, nil
}

// Key is orchestrator.Keys.
func (k *keys) Key(ctx context.Context, t *run.Task, upstream map[id.Task]run.Key) (run.Key, error) {
	got, parts, err := k.keyer.Key(ctx, t, upstream)
	if err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.parts[t.ID] = parts
	return got, nil
}

// Changed is orchestrator.Keys.
func (k *keys) Changed(ctx context.Context, t *run.Task, began time.Time) (string, error) {
	return k.keyer.Changed(ctx, t, began)
}

// ChangedUnder is orchestrator.Keys.
func (k *keys) ChangedUnder(ctx context.Context, t, by *run.Task, began time.Time) (string, error) {
	return k.keyer.ChangedUnder(ctx, t, by, began)
}

// Grown is orchestrator.Keys.
func (k *keys) Grown(t *run.Task, most time.Duration) (string, error) {
	return k.keyer.Grown(t, most)
}

// together calls all of fs at once and joins their errors.
func together(ctx context.Context, fs ...func(context.Context) error) error {
	return errors.Join(life.Each(ctx, len(fs), len(fs), func(ctx context.Context, i int) error { return fs[i](ctx) })...)
}

// newRunID names a run.
func newRunID() string { return "r-" + id.Random(8) }

var _ orchestrator.Keys = (*keys)(nil)

// failedRun is the error of a run whose tasks did not all succeed: the summary
// has said the rest.
func failedRun(r *orchestrator.Report, text string) error {
	switch r.Finished.Status {
	case run.Success:
		return nil
	case run.Aborted:
		return errs.New(errs.Canceled, "%s", text)
	}
	return errs.New(errs.FailedPrecondition, "%s", text)
}
