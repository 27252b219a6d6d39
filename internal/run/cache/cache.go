package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
	"brood/internal/run"
	"brood/internal/run/cache/entry"
	"brood/internal/run/cache/stamp"
	"brood/internal/run/cache/store"
)

// Access says what may be done with a cache.
type Access struct{ Read, Write bool }

// Config is how a run uses its caches.
type Config struct {
	// Dir is the folder of the local store.
	Dir string
	// MaxBytes bounds the local store; 0 is no bound.
	MaxBytes int64
	// Root is the workspace's root, absolute.
	Root string
	// Projects are the folders of all projects of the workspace.
	Projects []string
	// Tracked says that git tracks a path; nil is never.
	Tracked func(path string) bool
	// Additive are the tasks that own only what they added to an upstream's
	// outputs: those whose definition says so, and more if the caller likes.
	Additive func(id.Task) bool
	// Beside are the tasks, sorted, whose outputs overlap with one's and that do
	// not wait for each other. Such tasks take turns, and each owns what it
	// added; nil is none.
	Beside func(id.Task) []id.Task
	// Stamps spares reading files again; nil keeps none. Close saves it.
	Stamps *stamp.Table
	// Local and Shared say what may be done with the local store and with Remote.
	Local, Shared Access
	// Remote is the shared cache; nil is none.
	Remote Remote
	// Warn is told what the user should know and what fails nothing. It must not
	// block.
	Warn func(error)
}

// DefaultMaxBytes is the bound of the local store when the user sets none.
const DefaultMaxBytes = 10_000_000_000

// Cache stores and restores results.
type Cache struct {
	cfg    Config
	store  *store.Store
	root   *os.Root
	folder *os.File // the root again
	nested map[string]bool
	shared *shared
	begun  *begun

	mu     sync.Mutex // guards what follows
	stage  *stage
	kept   map[run.Key]error // entries that this machine could not restore, and why
	left   map[id.Task]left
	asked  map[id.Task]int64  // the turns of a task when it was looked up and not found
	adders map[string]id.Task // by path: the task that added it in this run
}

// Stamps loads the stamps of the workspace at root from beside the store in dir.
func Stamps(dir, root string) *stamp.Table {
	return stamp.Load(filepath.Join(dir, "stamps", digest.Of([]byte(root)).Short()))
}

// Folders is the file beside them that files.Config wants.
func Folders(dir, root string) string {
	return filepath.Join(dir, "stamps", digest.Of([]byte(root)).Short()+".folders")
}

// Open opens the local store, making it if there is none.
func Open(ctx context.Context, cfg Config) (*Cache, error) {
	st, err := store.Open(cfg.Dir, cfg.MaxBytes)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(cfg.Root)
	if err != nil {
		return nil, errs.New(errs.NotFound, "workspace: %w", err)
	}
	folder, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(errs.New(errs.NotFound, "workspace: %w", err), root.Close())
	}
	if cfg.Tracked == nil {
		cfg.Tracked = func(string) bool { return false }
	}
	if cfg.Additive == nil {
		cfg.Additive = func(id.Task) bool { return false }
	}
	if cfg.Beside == nil {
		cfg.Beside = func(id.Task) []id.Task { return nil }
	}
	if cfg.Warn == nil {
		cfg.Warn = func(error) {}
	}
	if cfg.Stamps == nil {
		cfg.Stamps = stamp.Load("")
	}
	c := &Cache{cfg: cfg, store: st, root: root, folder: folder, nested: make(map[string]bool, len(cfg.Projects)), left: map[id.Task]left{}, asked: map[id.Task]int64{}, adders: map[string]id.Task{}}
	for _, p := range cfg.Projects {
		c.nested[p] = true
	}
	c.begun = c.openBegun()
	if cfg.Remote != nil {
		c.shared = newShared(ctx, cfg.Remote, cfg.Warn)
	}
	return c, nil
}

// Close waits for uploads, as long as ctx allows, and puts the store in order.
// Nothing else may be called any more.
func (c *Cache) Close(ctx context.Context) error {
	if c.shared != nil {
		c.shared.drain(ctx, nil)
	}
	var warn []error
	if err := c.store.Settle(ctx, blobsOf); err != nil {
		warn = append(warn, err)
	}
	if err := c.cfg.Stamps.Save(c.cfg.Root); err != nil {
		warn = append(warn, home.DiskError(err, "remember what was restored"))
	}
	for _, err := range warn {
		c.cfg.Warn(fmt.Errorf("cache: %w", err))
	}
	return errors.Join(c.begun.close(), c.closeStage())
}

// blobsOf tells the store which contents an entry names.
func blobsOf(b []byte) ([]digest.Digest, error) {
	e, err := entry.Decode(b)
	if err != nil {
		return nil, err
	}
	var all []digest.Digest
	for _, c := range e.Blobs() {
		all = append(all, c.Digest)
	}
	return all, nil
}

// Hit is a stored result for a task.
type Hit struct {
	c      *Cache
	task   *run.Task
	entry  *entry.Entry
	remote bool
}

// Took is how long the run that produced the result took.
func (h *Hit) Took() time.Duration { return h.entry.Took }

// Usage is what the run that produced the result used.
func (h *Hit) Usage() run.Usage { return h.entry.Usage }

// Remote says that the result came from the shared cache.
func (h *Hit) Remote() bool { return h.remote }

// Lookup returns the stored result for a key.
func (c *Cache) Lookup(ctx context.Context, t *run.Task, key run.Key) (*Hit, bool) {
	turns := c.count(t)
	hit := c.lookup(ctx, t, key)
	if hit == nil && len(t.Outputs) > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asked[t.ID] = turns
	}
	return hit, hit != nil
}

func (c *Cache) lookup(ctx context.Context, t *run.Task, key run.Key) *Hit {
	if c.cfg.Local.Read {
		if e := c.local(key); e != nil && c.placeable(t, e) {
			return &Hit{c: c, task: t, entry: e}
		}
	}
	if c.shared == nil || !c.cfg.Shared.Read {
		return nil
	}
	e := c.shared.entry(ctx, key, c.store)
	if e == nil || !c.placeable(t, e) {
		return nil
	}
	if c.cfg.Local.Write {
		if err := c.store.PutEntry(key, e.Encode()); err != nil {
			c.cfg.Warn(err)
		}
	}
	return &Hit{c: c, task: t, entry: e, remote: true}
}

// local reads an entry of the local store. A damaged one is removed.
func (c *Cache) local(key run.Key) *entry.Entry {
	b, err := c.store.Entry(key, entry.Most)
	if err != nil {
		if !errs.Is(err, errs.NotFound) {
			c.cfg.Warn(err)
		}
		return nil
	}
	e, err := entry.Decode(b)
	if err != nil || e.Key != key {
		c.store.RemoveEntry(key, b)
		return nil
	}
	return e
}

// drop removes an entry that cannot be restored.
func (c *Cache) drop(e *entry.Entry) { c.store.RemoveEntry(e.Key, e.Encode()) }

// project is the folder of the task's project, "" for the root.
func project(t *run.Task) string {
	if t.Dir == "." {
		return ""
	}
	return t.Dir
}

// Count measures the local store; Sweep shrinks it to limit bytes.
func Count(ctx context.Context, dir string) (store.Usage, error) {
	s, err := store.Open(dir, 0)
	if err != nil {
		return store.Usage{}, err
	}
	return s.Count(ctx)
}

// Sweep drops what was unused for longest until the store holds at most limit
// bytes.
func Sweep(ctx context.Context, dir string, limit int64) (store.Usage, error) {
	s, err := store.Open(dir, 0)
	if err != nil {
		return store.Usage{}, err
	}
	return s.Sweep(ctx, limit, blobsOf)
}

func has(all []string, s string) bool {
	_, ok := slices.BinarySearch(all, s)
	return ok
}
