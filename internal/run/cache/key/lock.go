package key

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"brood/internal/base/content"
	"brood/internal/run"
	"brood/internal/run/cache/files"
	"brood/internal/run/cache/glob"
	"brood/internal/run/cache/lockfile"
	"brood/internal/run/cache/stamp"
)

// lock is the lockfile as the projects see it: what the root depends on is
// seen by all, the rest by those that depend on it. A file that is not
// understood, or does not know a project, counts as a whole.
type lock struct {
	whole *Group
	list  []input

	parsed *lockfile.Lock
	dir    string // of the lockfile
	root   []lockfile.Package

	mu     sync.Mutex // guards the maps
	byDir  map[string]*Group
	shared map[string]*Group // by what projects depend on directly
}

// Lockfile is a lockfile that was read.
type Lockfile struct {
	stat   stamp.Stat     // as it was read; zero when a later change need not show
	parsed *lockfile.Lock // nil: the whole file counts, by its id
}

// ReadLockfile reads the lockfile at name in root. It may be called before
// there is a snapshot of the files: New reads again what changed meanwhile.
func ReadLockfile(root, name string) *Lockfile {
	l := &Lockfile{}
	file := filepath.Join(root, name)
	before, err := stamp.Of(file)
	if err != nil {
		return l
	}
	settled := before.Settled(time.Now())
	b, err := content.ReadFile(file, name, content.MaxText)
	if err != nil {
		return l
	}
	if settled {
		l.stat = before
	}
	l.parsed = lockfile.Parse(name, b)
	return l
}

func (l *lock) files() []files.File { return filesOf(l.list) }

func (k *Keyer) readLock(ctx context.Context) error {
	l := &lock{byDir: map[string]*Group{}, shared: map[string]*Group{}}
	k.lock = l
	if k.cfg.Lockfile != "" {
		set, err := glob.New(".", []string{k.cfg.Lockfile})
		if err != nil {
			return err
		}
		in, err := k.collect(ctx, selection{set: set})
		if err != nil {
			return err
		}
		l.list = in.all
	}
	l.whole = newGroup(LockGroup, fileItems(l.list))
	if len(l.list) != 1 {
		return nil
	}
	read := k.cfg.Read
	if read == nil || !l.list[0].file.Was(read.stat) {
		read = ReadLockfile(k.cfg.Files.Root(), k.cfg.Lockfile)
	}
	if l.parsed = read.parsed; l.parsed == nil {
		return nil
	}
	l.dir = path.Dir(k.cfg.Lockfile)
	root, ok := l.parsed.Project(".")
	if !ok {
		l.parsed = nil
		return nil
	}
	l.root = append(slices.Clone(l.parsed.General()), root...)
	return nil
}

// of returns what the project in dir sees.
func (l *lock) of(dir string) *Group {
	if l.parsed == nil {
		return l.whole
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.byDir[dir]
	if g == nil {
		g = l.make(dir)
		l.byDir[dir] = g
	}
	return g
}

func (l *lock) make(dir string) *Group {
	at, err := filepath.Rel(l.dir, dir)
	if err != nil {
		return l.whole
	}
	name := fmt.Sprint(l.parsed.Direct(at))
	if g := l.shared[name]; g != nil {
		return g
	}
	mine, ok := l.parsed.Project(at)
	if !ok {
		return l.whole
	}
	var items []Item
	for _, p := range append(slices.Clone(l.root), mine...) {
		items = append(items, Item{Name: p.Name, Value: p.Value})
	}
	sortItems(items)
	g := newGroup(LockGroup, slices.CompactFunc(items, func(a, b Item) bool { return a.Name == b.Name }))
	l.shared[name] = g
	return g
}

// outputs compiles the output globs of a task.
func (k *Keyer) outputs(t *run.Task) (*glob.Set, error) { return glob.New(t.Dir, t.Outputs) }
