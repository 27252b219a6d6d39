package runs

import (
	"context"
	"path/filepath"
	"strings"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/config"
	"brood/internal/run"
	"brood/internal/run/cache"
	"brood/internal/run/orchestrator"
)

// cacheAccess is what may be done with the caches.
type cacheAccess struct{ local, shared cache.Access }

// access reads --cache, --force and --no-cache, and what turbo has beside.
func (f *runFlags) access() (cacheAccess, error) {
	all := cache.Access{Read: true, Write: true}
	a := cacheAccess{local: all, shared: all}
	if f.cache != "" {
		a = cacheAccess{}
		for part := range strings.SplitSeq(f.cache, ",") {
			name, what, _ := strings.Cut(strings.TrimSpace(part), ":")
			access := cache.Access{Read: strings.Contains(what, "r"), Write: strings.Contains(what, "w")}
			if strings.Trim(what, "rw") != "" || name != "local" && name != "remote" {
				return a, errs.New(errs.InvalidArgument, "%s %q is not understood: write local:rw,remote:r, with r to read and w to write", f.source("--cache"), f.cache)
			}
			if name == "local" {
				a.local = access
			} else {
				a.shared = access
			}
		}
	}
	if f.remoteOnly {
		a.local = cache.Access{}
	}
	if f.remoteReadOnly {
		a.shared.Write = false
	}
	if f.force {
		a.local.Read, a.shared.Read = false, false
	}
	if f.noCache {
		a.local.Write, a.shared.Write = false, false
	}
	return a, nil
}

// cacheDir is where a machine's results are.
func (a *app) cacheDir() (string, error) {
	h, err := a.OwnDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(h.Dir(), "cache"), nil
}

// cacheBytes is the bound of the local cache: the flag's, else the workspace's,
// else the default.
func (s *session) cacheBytes(f runFlags) (int64, error) {
	if f.cacheSize != "" {
		n, err := config.ParseBytes("--cache-size", f.cacheSize)
		return int64(n), err
	}
	if b := s.ws.Settings.Brood; b != nil && b.Cache.Size > 0 {
		return b.Cache.Size, nil
	}
	return cache.DefaultMaxBytes, nil
}

// openCache opens the caches. tracked is asked once the files are known.
func (a *app) openCache(ctx context.Context, s *session, f runFlags, o cache.Config) (*cache.Cache, error) {
	access, err := f.access()
	if err != nil {
		return nil, err
	}
	if o.MaxBytes, err = s.cacheBytes(f); err != nil {
		return nil, err
	}
	for _, p := range s.ws.Projects {
		o.Projects = append(o.Projects, p.Dir)
	}
	o.Root, o.Local, o.Shared = s.ws.Root, access.local, access.shared
	return cache.Open(ctx, o)
}

// results is a cache as the orchestrator wants it.
type results struct {
	*cache.Cache
	wipe bool // outputs go before a task runs
}

// Lookup is orchestrator.Cache.
func (r results) Lookup(ctx context.Context, t *run.Task, key run.Key) (orchestrator.Hit, bool) {
	hit, ok := r.Cache.Lookup(ctx, t, key)
	return hit, ok
}

// Enter is orchestrator.Cache.
func (r results) Enter(ctx context.Context, t *run.Task, waits func(beside id.Task)) (orchestrator.Turn, bool, error) {
	return r.Cache.Enter(ctx, t, waits)
}

// Stands is orchestrator.Cache.
func (r results) Stands(t, by *run.Task, look bool) orchestrator.Standing {
	return orchestrator.Standing(r.Cache.Stands(t, by, look))
}

// Prepare is orchestrator.Cache.
func (r results) Prepare(_ context.Context, t *run.Task) (any, error) {
	if r.wipe {
		if err := r.Clean(t); err != nil {
			return nil, err
		}
	}
	before, err := r.Cache.Prepare(t)
	if before == nil {
		return nil, err // not an any that holds a nil pointer
	}
	return before, err
}

// Save is orchestrator.Cache.
func (r results) Save(ctx context.Context, s orchestrator.Saving) error {
	log, err := s.Log.Reader()
	if err != nil {
		return err
	}
	before, _ := s.Before.(*cache.Before)
	turn, _ := s.Turn.(*cache.Turn)
	return r.Cache.Save(ctx, cache.Saving{Task: s.Task, Key: s.Key, Result: s.Result, Log: log, Before: before, Turn: turn})
}

var _ orchestrator.Cache = results{}
