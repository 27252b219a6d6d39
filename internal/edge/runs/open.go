package runs

import (
	"context"
	"errors"

	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/run/cache"
	"brood/internal/run/cache/files"
	"brood/internal/run/cache/key"
	"brood/internal/run/cache/stamp"
	"brood/internal/run/history"
	"brood/internal/run/orchestrator"
	"brood/internal/run/worker"
	"brood/internal/run/workspace"
)

// parts are what a run is made of. What needs no more than the workspace's root
// is opened beside reading the workspace: git takes longest of all.
type parts struct {
	group    *life.Group
	dir      string // of the cache
	stamps   *stamp.Table
	snapshot *files.Snapshot
	lockfile *key.Lockfile // nil: it was not read beforehand
	// history is nil where its file cannot be opened: then nothing is forecast.
	history *history.History
	figures map[id.Task]history.Figures
	early   []string // warnings from before there was a view
	showing bool     // there is one

	keys     *keys
	cache    *cache.Cache
	additive map[id.Task]bool
	beside   map[id.Task][]id.Task // tasks that write the same files
	remote   remote
	wipe     bool
	worker   *worker.Worker
	warn     func(string) // set before anything runs
}

// begin begins to open the parts of a run in the workspace that dir is in.
func (a *app) begin(ctx context.Context, f runFlags) (*parts, error) {
	at, err := f.dir()
	if err != nil {
		return nil, err
	}
	root, err := workspace.Root(at)
	if err != nil {
		return nil, err
	}
	p := &parts{group: life.NewGroup(ctx), warn: a.warning}
	if p.dir, err = a.cacheDir(); err != nil {
		return nil, err
	}
	// They outlive the group, so their context is not the group's.
	p.group.Go("files", func(context.Context) (err error) {
		p.stamps = cache.Stamps(p.dir, root)
		p.snapshot, err = files.Read(ctx, files.Config{Root: root, Stamps: p.stamps, Folders: cache.Folders(p.dir, root)})
		return err
	})
	p.group.Go("history", func(context.Context) error {
		p.remember(ctx, a, root)
		return nil
	})
	return p, nil
}

// read reads what is known to be needed once the workspace is, beside what is
// being opened.
func (p *parts) read(s *session) {
	if s.ws.Lockfile == "" {
		return
	}
	p.group.Go("lockfile", func(context.Context) error {
		p.lockfile = key.ReadLockfile(s.ws.Root, s.ws.Lockfile)
		return nil
	})
}

// remember looks up what is known of the tasks. That it cannot is no reason not
// to run.
func (p *parts) remember(ctx context.Context, a *app, root string) {
	h, err := a.history(p.note)
	if err == nil {
		p.history = h
		p.figures, err = h.Figures(ctx, root, platform)
	}
	if err != nil && ctx.Err() == nil {
		p.note("nothing is known of past runs: " + err.Error())
	}
}

// note warns, once there is somewhere to: until then the warnings wait.
func (p *parts) note(text string) {
	if p.showing {
		p.warn(text)
		return
	}
	p.early = append(p.early, text)
}

// open opens the rest, once the tasks are known.
func (p *parts) open(ctx context.Context, a *app, s *session, f runFlags) (err error) {
	if b := s.ws.Settings.Brood; b != nil {
		p.wipe = b.Cache.Wipe
	}
	if p.worker, err = worker.New(worker.Config{Credentials: s.credentials(), Terminal: a.terminal()}); err != nil {
		return err
	}
	if err := p.group.Wait(); err != nil {
		return err
	}
	if a.alone != nil && s.cached.Address != "" {
		p.early = append(p.early, "the shared cache is not used: "+a.alone.Error())
	}
	if p.remote, err = a.remote(s, s.cached); err != nil {
		return err
	}
	return together(ctx,
		func(ctx context.Context) (err error) {
			p.keys, err = s.newKeys(ctx, p.snapshot, p.lockfile)
			return err
		},
		func(ctx context.Context) (err error) {
			if err := p.overlaps(s); err != nil {
				return err
			}
			p.cache, err = a.openCache(ctx, s, f, cache.Config{
				Remote: p.remote.cache, Additive: p.adds, Beside: p.besides,
				Dir: p.dir, Stamps: p.stamps, Tracked: p.snapshot.Tracked, Warn: func(err error) { p.warn(err.Error()) },
			})
			return err
		},
	)
}

func (p *parts) close(ctx context.Context) error {
	_ = p.group.Stop() // open has told what went wrong
	var all error
	if p.cache != nil {
		all = errors.Join(all, p.cache.Close(ctx))
	}
	p.remote.close()
	if p.worker != nil {
		all = errors.Join(all, p.worker.Close())
	}
	// The history is left open: the program ends, see history.Close.
	if p.snapshot != nil {
		all = errors.Join(all, p.snapshot.Close())
	}
	return all
}

// credentials are the variables that hold those of the cache, which no task
// sees.
func (s *session) credentials() []string {
	var names []string
	if b := s.ws.Settings.Brood; b != nil {
		if b.Cache.Token.Env != "" {
			names = append(names, b.Cache.Token.Env)
		}
		for _, h := range b.Cache.Headers {
			if h.Env != "" {
				names = append(names, h.Env)
			}
		}
	}
	return names
}

func (p *parts) into(c *orchestrator.Config, command []string) {
	c.Keys, c.Worker, c.Cache, c.Additive = p.keys, p.worker, results{Cache: p.cache, wipe: p.wipe}, p.adds
	if p.remote.cache != nil {
		c.Lookups = max(c.Lookups, remoteLookups)
	}
	if p.history != nil {
		c.History = past{History: p.history, command: command, keys: p.keys}
		c.Past = expectations(p.figures, c.Tasks)
	}
}
