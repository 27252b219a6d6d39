package key

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/cache/files"
	"brood/internal/run/cache/glob"
)

// Config is what keys are made from besides the tasks.
type Config struct {
	// Files are the workspace's files; the caller closes them.
	Files   *files.Snapshot
	Manager run.Manager
	// Lockfile is the path of the package manager's lockfile relative to the
	// root; "" is none.
	Lockfile string
	// Read is what ReadLockfile made of it before; nil reads it now.
	Read    *Lockfile
	Globals run.Globals
	// Environ is the run's environment, as os.Environ gives it.
	Environ []string
	// Task returns a task of the graph, nil when it has none of that name.
	Task func(id.Task) *run.Task
}

// Keyer computes keys.
type Keyer struct {
	cfg    Config
	env    environ
	global *Group
	// guard are the files that enter every key, grown those that came to them.
	guard []files.File
	grown *grown
	lock  *lock

	mu     sync.Mutex // guards the maps
	inputs map[string]*inputs
	envs   map[string]*Group
}

// inputs are the input files of tasks that have the same globs.
type inputs struct {
	group *Group
	files []files.File
}

// New prepares for computing keys.
func New(ctx context.Context, cfg Config) (*Keyer, error) {
	k := &Keyer{cfg: cfg, env: newEnviron(cfg.Environ), inputs: map[string]*inputs{}, envs: map[string]*Group{}}
	deps, err := glob.New(".", cfg.Globals.Dependencies)
	if err != nil {
		return nil, err
	}
	k.guard, err = k.collect(ctx, selection{set: deps})
	if err != nil {
		return nil, err
	}
	k.grown = &grown{files: cfg.Files, deps: deps, projects: cfg.Globals.Projects, known: map[string]bool{}}
	for _, f := range k.guard {
		k.grown.known[f.Path] = true
	}
	for _, dir := range cfg.Globals.Projects {
		k.guard = append(k.guard, cfg.Files.Under(dir)...)
	}
	slices.SortFunc(k.guard, byPath)
	k.guard = slices.CompactFunc(k.guard, func(a, b files.File) bool { return a.Path == b.Path })
	items := prefixed("variable ", k.env.items(cfg.Globals.Env))
	items = append(items, fileItems(k.guard)...)
	items = append(items,
		Item{"field envMode", cfg.Globals.EnvMode},
		Item{"field passThrough", list(sorted(cfg.Globals.PassThrough))},
		Item{"field env", list(sorted(cfg.Globals.Env))},
		Item{"field packageManager", cfg.Manager.Name})
	k.global = newGroup(GlobalGroup, sortItems(items))
	if err := k.readLock(ctx); err != nil {
		return nil, err
	}
	return k, nil
}

// Key computes the key of a task from those of its dependencies.
func (k *Keyer) Key(ctx context.Context, t *run.Task, upstream map[id.Task]run.Key) (run.Key, *Parts, error) {
	in, err := k.inputsOf(ctx, t)
	if err != nil {
		return "", nil, err
	}
	up := make([]Item, 0, len(t.Deps))
	for _, d := range t.Deps {
		key, ok := upstream[d]
		if !ok {
			return "", nil, errs.New(errs.Internal, "the key of %s needs that of %s, which is not known", t.ID, d)
		}
		up = append(up, Item{Name: string(d), Value: string(key)})
	}
	if !slices.IsSortedFunc(up, byName) {
		sortItems(up)
	}
	groups := []*Group{
		newGroup(TaskGroup, taskItems(t)),
		k.envOf(t),
		k.global,
		k.lock.of(t.Dir),
		newGroup(UpstreamGroup, up),
		in.group,
	}
	p := &Parts{Key: seal(groups), Groups: groups}
	return p.Key, p, nil
}

// taskItems are the parts that the task itself gives: every field of its
// Definition that has a JSON name, its command, its arguments.
func taskItems(t *run.Task) []Item {
	d := &t.Definition
	all := make([]Item, 0, 16)
	add := func(name, value string) { all = append(all, Item{Name: name, Value: value}) }
	flag := func(name string, v bool) {
		if v {
			add(name, "true")
		}
	}
	globs := func(name string, v []string) {
		if len(v) > 0 {
			add(name, list(v))
		}
	}
	add("id", string(t.ID))
	add("dir", t.Dir)
	if len(t.Args) > 0 {
		add("arguments", list(t.Args))
	}
	if t.Command.Script != "" {
		add("script", t.Command.Script)
	}
	if t.Command.Line != "" {
		add("command", t.Command.Line)
	}
	globs("inputs", d.Inputs)
	flag("defaultInputs", d.DefaultInputs)
	globs("outputs", d.Outputs)
	flag("cache", d.Cache)
	flag("persistent", d.Persistent)
	flag("interactive", d.Interactive)
	globs("env", d.Env)
	globs("passThrough", d.PassThrough)
	for name, v := range d.Define {
		add("define "+name, v)
	}
	if d.Platform != "" {
		add("platform", d.Platform)
	}
	flag("additive", d.Additive)
	return sortItems(all)
}

func (k *Keyer) envOf(t *run.Task) *Group {
	name := strings.Join(t.Env, "\x00")
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.envs[name]
	if g == nil {
		g = newGroup(EnvGroup, k.env.items(t.Env))
		k.envs[name] = g
	}
	return g
}

// selection says which files are meant.
type selection struct {
	dir      string
	defaults bool
	set      *glob.Set
	outputs  []*glob.Set // untracked files of these are not
}

func (s selection) made(name string) bool {
	return slices.ContainsFunc(s.outputs, func(o *glob.Set) bool { return o.Match(name) })
}

// selectionOf returns what a task's inputs are. Its name is equal for equal
// selections.
func (k *Keyer) selectionOf(t *run.Task) (selection, string, error) {
	set, err := glob.New(t.Dir, t.Inputs)
	if err != nil {
		return selection{}, "", err
	}
	s := selection{dir: t.Dir, defaults: t.DefaultInputs, set: set}
	name := t.Dir + "\x00" + strconv.FormatBool(t.DefaultInputs) + "\x00" + strings.Join(t.Inputs, "\x00") + "\x00\x00"
	if len(t.Inputs) == 0 && !k.cfg.Files.Loose(t.Dir) {
		return s, name, nil // only untracked files can be outputs
	}
	tasks := k.producers(t)
	for _, p := range tasks {
		o, err := glob.New(p.Dir, p.Outputs)
		if err != nil {
			return selection{}, "", err
		}
		s.outputs = append(s.outputs, o)
		name += strings.Join(p.Outputs, "\x00") + "\x00\x00"
	}
	return s, name, nil
}

// producers are the task itself and those of its project that it waits for and
// that are cached. What one makes that is not cached no key stands for: it is an
// input like any other file.
func (k *Keyer) producers(t *run.Task) []*run.Task {
	all := []*run.Task{t}
	seen := map[id.Task]bool{t.ID: true}
	for i := 0; i < len(all); i++ {
		for _, d := range all[i].Deps {
			if p, _ := d.Split(); p != t.Project || seen[d] || k.cfg.Task == nil {
				continue
			}
			seen[d] = true
			if up := k.cfg.Task(d); up != nil {
				all = append(all, up)
			}
		}
	}
	rest := all[1:]
	slices.SortFunc(rest, func(a, b *run.Task) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return slices.DeleteFunc(all, func(p *run.Task) bool { return len(p.Outputs) == 0 || p != t && !p.Cache })
}

func (k *Keyer) inputsOf(ctx context.Context, t *run.Task) (*inputs, error) {
	sel, name, err := k.selectionOf(t)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	in := k.inputs[name]
	k.mu.Unlock()
	if in != nil {
		return in, nil
	}
	all, err := k.collect(ctx, sel)
	if err != nil {
		return nil, err
	}
	in = &inputs{group: newGroup(FilesGroup, fileItems(all)), files: all}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.inputs[name] = in
	return in, nil
}

// collect lists the selected files, sorted.
func (k *Keyer) collect(ctx context.Context, s selection) ([]files.File, error) {
	var all []files.File
	take := func(f files.File) {
		if f.Tracked || !s.made(f.Path) {
			all = append(all, f)
		}
	}
	if s.defaults {
		for _, f := range k.cfg.Files.Under(s.dir) {
			if !s.set.Excluded(f.Path) {
				take(f)
			}
		}
	}
	if !s.set.Empty() {
		for _, base := range s.set.Bases() {
			if f, ok := k.cfg.Files.Find(base); ok && s.set.Match(base) {
				take(f)
			}
			for _, f := range k.cfg.Files.Under(base) {
				if s.set.Match(f.Path) {
					take(f)
				}
			}
		}
		ignored, err := k.cfg.Files.Named(ctx, s.set)
		if err != nil {
			return nil, err
		}
		for _, f := range ignored {
			take(f)
		}
	}
	if s.defaults && s.set.Empty() {
		return all, nil // sorted as the snapshot is; the manifest is among them
	}
	// What a script says is always an input.
	if f, ok := k.cfg.Files.Find(manifest(s.dir)); ok && s.dir != "" {
		all = append(all, f)
	}
	slices.SortFunc(all, byPath)
	return slices.CompactFunc(all, func(a, b files.File) bool { return a.Path == b.Path }), nil
}

func manifest(dir string) string {
	if dir == "." {
		return "package.json"
	}
	return dir + "/package.json"
}

func fileItems(all []files.File) []Item {
	items := make([]Item, len(all))
	for i, f := range all {
		items[i] = Item{Name: f.Path, Value: string(f.Mode) + ":" + f.ID}
	}
	return items
}

func byPath(a, b files.File) int { return strings.Compare(a.Path, b.Path) }

func byName(a, b Item) int { return strings.Compare(a.Name, b.Name) }

func sortItems(all []Item) []Item {
	slices.SortFunc(all, byName)
	return all
}

func prefixed(with string, all []Item) []Item {
	for i := range all {
		all[i].Name = with + all[i].Name
	}
	return all
}

func sorted(all []string) []string { return slices.Sorted(slices.Values(all)) }

// list writes strings so that no two lists look alike. Go's JSON would turn
// what is not UTF-8 into one and the same character, so quoting does it there.
func list(all []string) string {
	if len(all) == 0 {
		return "[]"
	}
	b, err := json.Marshal(all)
	if err != nil || strings.Contains(string(b), `\ufffd`) {
		var q []string
		for _, s := range all {
			q = append(q, strconv.Quote(s))
		}
		return "[" + strings.Join(q, ",") + "]"
	}
	return string(b)
}
