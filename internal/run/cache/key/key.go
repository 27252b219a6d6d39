package key

import (
	"context"
	"encoding/json"
	"path"
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
	// Beside returns the tasks of a project in the graph; nil has none.
	Beside func(id.Project) []*run.Task
}

// Keyer computes keys.
type Keyer struct {
	cfg    Config
	env    environ
	global *Group
	// guard are the files that enter every key, grown those that came to them.
	guard []input
	grown *grown
	lock  *lock

	mu     sync.Mutex // guards the maps
	inputs map[string]*inputs
	envs   map[string]*Group
}

// input is a file by the name under which a task reads it.
type input struct {
	name string
	file files.File
	to   *files.File // where it leads, when it is a link to a file
}

// inputs are the input files of tasks that have the same globs.
type inputs struct {
	group *Group
	all   []input
	// through are the folders that links among them lead to, by the links.
	through map[string]string
}

// New prepares for computing keys.
func New(ctx context.Context, cfg Config) (*Keyer, error) {
	k := &Keyer{cfg: cfg, env: newEnviron(cfg.Environ), inputs: map[string]*inputs{}, envs: map[string]*Group{}}
	deps, err := glob.New(".", cfg.Globals.Dependencies)
	if err != nil {
		return nil, err
	}
	guard, err := k.collect(ctx, selection{set: deps})
	if err != nil {
		return nil, err
	}
	k.guard = guard.all
	k.grown = &grown{files: cfg.Files, deps: deps, projects: cfg.Globals.Projects, known: map[string]bool{}}
	for _, f := range k.guard {
		k.grown.known[f.name] = true
	}
	for _, dir := range cfg.Globals.Projects {
		more, err := k.collect(ctx, selection{dir: dir, defaults: true})
		if err != nil {
			return nil, err
		}
		k.guard = append(k.guard, more.all...)
	}
	k.guard = inOrder(k.guard)
	items := prefixed("variable ", k.env.items(cfg.Globals.Env))
	items = append(items, fileItems(k.guard)...)
	items = append(items,
		Item{"field envMode", cfg.Globals.EnvMode},
		Item{"field passThrough", list(sorted(cfg.Globals.PassThrough))},
		Item{"field env", list(sorted(cfg.Globals.Env))},
		Item{"field packageManager", cfg.Manager.Name})
	if cfg.Globals.Engines != "" {
		items = append(items, Item{"field engines", cfg.Globals.Engines})
	}
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
	in, err = k.collect(ctx, sel)
	if err != nil {
		return nil, err
	}
	in.group = newGroup(FilesGroup, fileItems(in.all))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.inputs[name] = in
	return in, nil
}

// selects says that a name is among what is meant.
func (s selection) selects(name string) bool {
	if s.set.Match(name) {
		return true
	}
	return s.defaults && (s.dir == "." || s.dir == "" || strings.HasPrefix(name, s.dir+"/")) && !s.set.Excluded(name)
}

// collect lists the selected files, sorted by name.
func (k *Keyer) collect(ctx context.Context, s selection) (*inputs, error) {
	in := &inputs{through: map[string]string{}}
	var links []files.File
	take := func(f files.File) {
		if f.Tracked || !s.made(f.Path) {
			in.all = append(in.all, input{name: f.Path, file: f})
		}
	}
	if s.defaults {
		for _, f := range k.cfg.Files.Under(s.dir) {
			if f.Mode == files.Link {
				links = append(links, f)
			}
			if !s.set.Excluded(f.Path) {
				take(f)
			}
		}
	}
	if !s.set.Empty() {
		more, err := k.named(ctx, s, take)
		if err != nil {
			return nil, err
		}
		links = append(links, more...)
	}
	// What a script says is always an input.
	if f, ok := k.cfg.Files.Find(manifest(s.dir)); ok && s.dir != "" {
		in.all = append(in.all, input{name: f.Path, file: f})
	}
	err := k.follow(ctx, s, links, in)
	in.all = inOrder(in.all)
	return in, err
}

// named takes the files that the globs name, and returns links that lead to
// more.
func (k *Keyer) named(ctx context.Context, s selection, take func(files.File)) (links []files.File, err error) {
	for _, base := range s.set.Bases() {
		for up := base; up != "." && up != ""; up = path.Dir(up) {
			if f, ok := k.cfg.Files.Find(up); ok && f.Mode == files.Link {
				links = append(links, f)
			}
		}
		if f, ok := k.cfg.Files.Find(base); ok && s.set.Match(base) {
			take(f)
		}
		for _, f := range k.cfg.Files.Under(base) {
			if f.Mode == files.Link && (s.set.Match(f.Path) || s.set.Reaches(f.Path)) {
				links = append(links, f)
			}
			if s.set.Match(f.Path) {
				take(f)
			}
		}
	}
	ignored, err := k.cfg.Files.Named(ctx, s.set)
	for _, f := range ignored {
		if f.Mode == files.Link {
			links = append(links, f)
		}
		take(f)
	}
	return links, err
}

// follow completes inputs by what is read through links: a link to a file by the
// file, one to a folder by the files in it that are selected by the names that
// they have there.
func (k *Keyer) follow(ctx context.Context, s selection, links []files.File, in *inputs) error {
	if len(links) == 0 {
		return nil
	}
	to := map[string]*files.File{}
	for _, link := range links {
		t, err := k.cfg.Files.Follow(ctx, link)
		if err != nil {
			return err
		}
		if to[link.Path] = t.To; t.Dir != "" {
			in.through[link.Path] = t.Dir
		}
		for _, l := range t.Files {
			if s.selects(l.Name) && (l.File.Tracked || !s.made(l.Name) && !s.made(l.File.Path)) {
				in.all = append(in.all, input{name: l.Name, file: l.File, to: l.To})
			}
		}
	}
	for i, one := range in.all {
		if one.to == nil {
			in.all[i].to = to[one.name]
		}
	}
	return nil
}

func manifest(dir string) string {
	if dir == "." {
		return "package.json"
	}
	return dir + "/package.json"
}

// inOrder sorts inputs by name, each once.
func inOrder(all []input) []input {
	byName := func(a, b input) int { return strings.Compare(a.name, b.name) }
	if !slices.IsSortedFunc(all, byName) {
		slices.SortStableFunc(all, byName)
	}
	return slices.CompactFunc(all, func(a, b input) bool { return a.name == b.name })
}

func fileItems(all []input) []Item {
	items := make([]Item, len(all))
	for i, in := range all {
		items[i] = Item{Name: in.name, Value: string(in.file.Mode) + ":" + in.file.ID}
		if in.to != nil {
			items[i].Value += " " + string(in.to.Mode) + ":" + in.to.ID
		}
	}
	return items
}

// filesOf are the files that inputs are read from.
func filesOf(all []input) []files.File {
	list := make([]files.File, 0, len(all))
	for _, in := range all {
		if list = append(list, in.file); in.to != nil {
			list = append(list, *in.to)
		}
	}
	return list
}

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
