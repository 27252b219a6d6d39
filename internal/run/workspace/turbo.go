package workspace

import (
	"context"
	"errors"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/run"
	"brood/internal/run/workspace/source"
)

// turbo defines tasks by the turbo.json files of a workspace.
type turbo struct {
	w     *Workspace
	files map[id.Project]*turboFile
	// chains are the files that say what the tasks of a project are, the
	// root's first.
	chains map[id.Project][]*turboFile
	// merged keeps tasks that many projects share.
	merged map[mergeKey]*turboTask
	// named are the projects of tasks that the root's file names by their IDs;
	// nil until somebody asks.
	named map[id.Project]bool
}

type mergeKey struct {
	leaf *turboFile // the last of the chain
	name string
}

func notThere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// loadTurbo reads all turbo.json files of the workspace; top is the root's as
// it was read, or empty.
func (w *Workspace) loadTurbo(top *source.File) error {
	t := &turbo{w: w, files: map[id.Project]*turboFile{}, chains: map[id.Project][]*turboFile{}, merged: map[mergeKey]*turboTask{}}
	w.tasks = t
	read := make([]*turboFile, len(w.Projects))
	failures := life.Each(context.Background(), len(read), runtime.GOMAXPROCS(0), func(_ context.Context, i int) (err error) {
		p := w.Projects[i]
		if p.IsRoot() && top.Root != nil {
			read[i], err = turboOf(top, true)
			return err
		}
		read[i], err = readTurbo(w.Root, p.Dir, p.IsRoot())
		return err
	})
	for i, p := range w.Projects {
		if failures[i] != nil {
			return failures[i]
		}
		if read[i] != nil {
			t.files[p.Name] = read[i]
			w.Warnings = append(w.Warnings, read[i].warnings...)
		}
	}
	root := t.files[id.RootProject]
	if root == nil {
		return errs.New(errs.NotFound, "%s/turbo.json is gone", w.Root)
	}
	w.Settings.Concurrency = root.global.concurrency
	w.Globals = run.Globals{
		Env: sorted(root.global.env), PassThrough: sorted(root.global.passThrough),
		Dependencies: root.global.dependencies, EnvMode: root.global.envMode,
	}
	if root.globalConfiguration {
		w.Globals.Dependencies = nil // they are inputs of the tasks
	}
	if w.Globals.EnvMode == "" {
		w.Globals.EnvMode = "strict"
	}
	w.shared()
	return nil
}

func sorted(all []string) []string {
	out := slices.Clone(all)
	slices.Sort(out)
	return slices.Compact(out)
}

// chain returns the files that define the tasks of a project: its own, what
// that extends, and the root's, in the order in which they are laid over each
// other.
func (t *turbo) chain(p *Project) ([]*turboFile, error) {
	if c, ok := t.chains[p.Name]; ok {
		return c, nil
	}
	type visit struct {
		name id.Project
		path []id.Project
	}
	var leafFirst []*turboFile
	seen := map[id.Project]bool{}
	stack := []visit{{p.Name, nil}}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if i := slices.Index(at.path, at.name); i >= 0 {
			return nil, errs.New(errs.FailedPrecondition, "the turbo.json files of %s extend each other in a circle", circle(append(at.path[i:], at.name)))
		}
		if seen[at.name] {
			continue
		}
		file := t.files[at.name]
		switch {
		case file == nil && len(at.path) > 0:
			from := t.files[at.path[len(at.path)-1]]
			return nil, from.file.Wrong(1, "extends %q, which has no turbo.json or is no package of the workspace", at.name)
		case file == nil:
			stack = append(stack, visit{id.RootProject, nil})
			continue
		}
		seen[at.name] = true
		leafFirst = append(leafFirst, file)
		below := append(slices.Clone(at.path), at.name)
		for _, up := range file.extends {
			stack = append(stack, visit{id.Project(up), below})
		}
	}
	slices.Reverse(leafFirst)
	t.chains[p.Name] = leafFirst
	return leafFirst, nil
}

func circle(names []id.Project) string {
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = string(n)
	}
	return strings.Join(parts, " → ")
}

// layers returns what the files say of a task, lowest first. excluded: the
// last word is that the project does not have it.
func layers(chain []*turboFile, p *Project, name string) (found []*turboTask, excluded bool) {
	for _, file := range chain {
		task := file.tasks[string(id.TaskOf(p.Name, name))]
		plain := file.tasks[name]
		if task == nil {
			task = plain
		}
		if plain != nil && plain.extends != nil && !*plain.extends {
			found, excluded = nil, !plain.said // it begins anew here
			if !plain.said {
				continue
			}
		}
		if task != nil {
			found, excluded = append(found, task), false
		}
	}
	return found, excluded
}

func (t *turbo) task(p *Project, name string) (*Task, error) {
	chain, err := t.chain(p)
	if err != nil {
		return nil, err
	}
	scoped := string(id.TaskOf(p.Name, name))
	own := slices.ContainsFunc(chain, func(f *turboFile) bool { return f.tasks[scoped] != nil })
	key := mergeKey{chain[len(chain)-1], name}
	merged := t.merged[key]
	if merged == nil || own {
		found, excluded := layers(chain, p, name)
		if len(found) == 0 && !excluded {
			return nil, nil
		}
		merged = merge(found)
		merged.optOut = len(found) == 0
		if !own {
			t.merged[key] = merged
		}
	}
	task, err := t.resolve(p, name, merged)
	if err != nil {
		return nil, err
	}
	if t.files[p.Name] == nil {
		return task, nil // the root's word alone
	}
	if has, _ := t.selects(p.Name, p, name, map[id.Project]bool{}); !has && !task.Excluded {
		excluded := *task
		excluded.Excluded = true
		return &excluded, nil
	}
	return task, nil
}

// selects says whether asking for the name means this task of the project:
// the first file that speaks of it decides, that of the project before those
// that it extends, in their order.
func (t *turbo) selects(at id.Project, p *Project, name string, seen map[id.Project]bool) (has, decided bool) {
	if seen[at] {
		return false, false
	}
	seen[at] = true
	file := t.files[at]
	if file == nil {
		return t.selects(id.RootProject, p, name, seen)
	}
	task := file.tasks[string(id.TaskOf(p.Name, name))]
	if task == nil {
		task = file.tasks[name]
	}
	if task != nil {
		return task.extends == nil || *task.extends || task.said, true
	}
	for _, up := range file.extends {
		if has, decided := t.selects(id.Project(up), p, name, seen); decided {
			return has, true
		}
	}
	return false, false
}

// merge lays later layers over earlier ones, field by field; a list that names
// $TURBO_EXTENDS$ goes behind the one it covers.
func merge(found []*turboTask) *turboTask {
	all := &turboTask{}
	for _, t := range found {
		all.file, all.line = t.file, t.line
		over(&all.dependsOn, t.dependsOn)
		over(&all.inputs, t.inputs)
		over(&all.outputs, t.outputs)
		over(&all.env, t.env)
		over(&all.pass, t.pass)
		over(&all.with, t.with)
		if t.cache != nil {
			all.cache = t.cache
		}
		if t.persist != nil {
			all.persist = t.persist
		}
		if t.interact != nil {
			all.interact = t.interact
		}
		if t.logs != "" {
			all.logs = t.logs
		}
	}
	return all
}

func over(base *[]item, layer []item) {
	if layer == nil {
		return
	}
	at := slices.IndexFunc(layer, func(i item) bool { return i.text == tokenExtends })
	if at < 0 {
		*base = layer
		return
	}
	*base = slices.Concat(*base, layer[:at], layer[at+1:])
	if *base == nil {
		*base = []item{}
	}
}

func (t *turbo) names(p *Project) []string {
	chain, err := t.chain(p)
	if err != nil {
		return nil
	}
	var names []string
	for _, file := range chain {
		for key := range file.tasks {
			project, name := id.Task(key).Split()
			if project != "" && project != p.Name || project == "" && p.IsRoot() && !t.w.SinglePackage {
				continue
			}
			if has, _ := t.selects(p.Name, p, name, map[id.Project]bool{}); has {
				names = append(names, name)
			}
		}
	}
	return names
}

// scoped says that the root's file names a task of the project by its ID.
func (t *turbo) scoped(p id.Project) bool {
	if t.named == nil {
		t.named = map[id.Project]bool{}
		for key := range t.files[id.RootProject].tasks {
			project, _ := id.Task(key).Split()
			t.named[project] = true
		}
	}
	return t.named[p]
}

func (t *turbo) rooted(name string) bool {
	root := t.files[id.RootProject]
	return root.tasks["//#"+name] != nil || t.w.SinglePackage && root.tasks[name] != nil
}
