package workspace

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/workspace/source"
)

// brood defines tasks by brood.yaml files. All of them are made while the
// workspace is read, so that a wrong reference is told at once.
type brood struct {
	tasks map[id.Project]map[string]*Task
}

func (b *brood) task(p *Project, name string) (*Task, error) { return b.tasks[p.Name][name], nil }

func (b *brood) names(p *Project) []string { return slices.Collect(maps.Keys(b.tasks[p.Name])) }

func (b *brood) rooted(name string) bool { return b.tasks[id.RootProject][name] != nil }

// openBrood reads a workspace of brood.yaml files; top is the root's as it was
// read, or empty.
func (w *Workspace) openBrood(top *source.File) (err error) {
	var root *broodDoc
	if top.Root != nil {
		root, err = broodOf(top, true)
	} else {
		root, err = readBrood(w.Root, ".", true)
	}
	if err != nil {
		return err
	}
	if root == nil {
		return errs.New(errs.NotFound, "%s/%s is gone", w.Root, broodFile)
	}
	w.PassesThrough = true
	w.Settings.Brood = &root.settings
	w.Globals = run.Globals{
		Env: sorted(root.globals.env), PassThrough: sorted(root.globals.pass), Dependencies: root.globals.files,
		EnvMode: cmp.Or(root.envMode, "strict"),
	}
	docs, err := w.broodProjects(root)
	if err != nil {
		return err
	}
	if err := w.broodPackages(); err != nil {
		return err
	}
	w.index()
	w.SinglePackage = len(w.Projects) == 1
	return w.broodTasks(root, docs)
}

// broodProjects finds the projects and all that is said of each, in the order
// in which it is laid over each other: the root's words, then its own file's.
func (w *Workspace) broodProjects(root *broodDoc) (map[*Project][]projectDoc, error) {
	docs := map[*Project][]projectDoc{}
	byDir := map[string]*Project{}
	top := &Project{Name: id.RootProject, Dir: "."}
	w.Projects = []*Project{top}
	byDir["."], docs[top] = top, []projectDoc{root.about}
	add := func(dir string, said ...projectDoc) {
		p := byDir[dir]
		if p == nil {
			p = &Project{Dir: dir}
			byDir[dir] = p
			w.Projects = append(w.Projects, p)
		}
		docs[p] = append(docs[p], said...)
	}
	found, err := w.listed(root.globs)
	if err != nil {
		return nil, err
	}
	for _, dir := range found {
		add(dir)
	}
	var except []string
	for _, e := range root.entries {
		if strings.HasPrefix(e.glob, "!") {
			except = append(except, e.glob)
		}
	}
	for _, e := range root.entries {
		if strings.HasPrefix(e.glob, "!") {
			continue
		}
		find, wild := w.folders, strings.ContainsAny(e.glob, `*?[{\`)
		if wild && len(e.about.tasks) == 0 {
			find = w.listed // nothing is said of them here: they show themselves
		}
		dirs, err := find(append([]string{e.glob}, except...))
		if err != nil {
			return nil, root.file.Wrong(e.about.line, "%s", err)
		}
		switch {
		case len(dirs) == 0 && wild:
			w.warn(fmt.Sprintf("%s: projects: %q finds no project", root.file.At(e.about.line), e.glob))
		case len(dirs) == 0:
			return nil, root.file.Wrong(e.about.line, "projects: there is no folder %q", e.glob)
		}
		if len(dirs) > 1 && e.about.name != "" {
			return nil, root.file.Wrong(e.about.line, "projects: %q finds %d folders, which cannot all be named %q", e.glob, len(dirs), e.about.name)
		}
		for _, dir := range dirs {
			add(dir, e.about)
		}
	}
	return docs, w.ownFiles(docs)
}

// markers are the files that make a folder a project where a glob names it.
var markers = []string{broodFile, manifestName, "go.mod", "Cargo.toml", "pyproject.toml"}

// folders returns all folders that globs name.
func (w *Workspace) folders(globs []string) ([]string, error) {
	return members(w.Root, globs, isFolder)
}

// listed returns the folders that globs name and that look like projects.
func (w *Workspace) listed(globs []string) ([]string, error) {
	var all []string
	for _, marker := range markers {
		dirs, err := members(w.Root, globs, holding(marker))
		if err != nil {
			return nil, err
		}
		all = append(all, dirs...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// ownFiles reads each project's brood.yaml and package.json and names it.
func (w *Workspace) ownFiles(docs map[*Project][]projectDoc) error {
	where := map[id.Project]string{}
	for _, p := range w.Projects {
		m, err := readManifest(filepath.Join(w.Root, p.Dir), path.Join(p.Dir, manifestName))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if m != nil {
			p.manifest, p.Scripts = m, m.Scripts
		}
		if p.IsRoot() {
			continue
		}
		own, err := readBrood(w.Root, p.Dir, false)
		if err != nil {
			return err
		}
		if own != nil {
			docs[p] = append(docs[p], own.about)
		}
		p.Name = id.Project(p.Dir)
		if m != nil && m.Name != "" {
			p.Name = id.Project(m.Name)
		}
		for _, d := range docs[p] {
			p.Name = cmp.Or(id.Project(d.name), p.Name)
		}
		if other, twice := where[p.Name]; twice {
			return errs.New(errs.FailedPrecondition, "%s and %s are both named %q: give one of them a name in its brood.yaml", other, p.Dir, p.Name)
		}
		where[p.Name] = p.Dir
	}
	w.index()
	return w.declared(docs)
}

// declared adds the edges that brood.yaml files name.
func (w *Workspace) declared(docs map[*Project][]projectDoc) error {
	for _, p := range w.Projects {
		for _, d := range docs[p] {
			for _, need := range d.needs {
				to := w.byName[id.Project(need.text)]
				if to == nil {
					return d.file.Wrong(need.line, "dependencies: there is no project %q%s", need.text, didYouMean(need.text, w.projectNames()))
				}
				if to != p && !slices.Contains(p.Deps, to) {
					p.Deps = append(p.Deps, to)
				}
			}
		}
	}
	return nil
}

func (w *Workspace) projectNames() []string {
	names := make([]string, len(w.Projects))
	for i, p := range w.Projects {
		names[i] = string(p.Name)
	}
	return names
}

func didYouMean(word string, names []string) string {
	if near := source.Nearest(word, names); near != "" {
		return ": did you mean " + near + "?"
	}
	return ""
}

// broodPackages adds what package.json files say: the manager and the edges.
func (w *Workspace) broodPackages() error {
	if !slices.ContainsFunc(w.Projects, func(p *Project) bool { return p.manifest != nil }) {
		return nil
	}
	top := w.byName[id.RootProject].manifest
	if top == nil {
		top = &manifest{}
	}
	if err := w.findManager(top); err != nil {
		return err
	}
	var pnpm *pnpmSettings
	if w.Manager.Name == "pnpm" {
		var err error
		if pnpm, err = readPnpm(w.Root); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return w.linkAll(pnpm)
}

// broodTasks makes every task and checks every reference.
func (w *Workspace) broodTasks(root *broodDoc, docs map[*Project][]projectDoc) error {
	b := &brood{tasks: map[id.Project]map[string]*Task{}}
	w.tasks = b
	said := map[*Task]*broodTask{}
	everywhere := map[string]bool{}
	for _, p := range w.Projects {
		b.tasks[p.Name] = map[string]*Task{}
		for name, t := range root.layersOf(p, docs[p], w.SinglePackage) {
			task, err := w.broodTask(p, t)
			if err != nil {
				return err
			}
			b.tasks[p.Name][name], said[task], everywhere[name] = task, t, true
		}
	}
	for _, p := range w.Projects {
		for _, name := range w.TaskNames(p) {
			task := b.tasks[p.Name][name]
			if err := w.checkRefs(p, task, said[task], everywhere); err != nil {
				return err
			}
		}
	}
	return nil
}

// layersOf lays all that is said of the tasks of a project over each other. A
// script of package.json is a task where the root's defaults know its name; not
// so one of the root beside other projects, where it mostly starts the run.
func (d *broodDoc) layersOf(p *Project, docs []projectDoc, alone bool) map[string]*broodTask {
	all := map[string]*broodTask{}
	begin := func(name string) *broodTask {
		t := all[name]
		if t == nil {
			base := d.defaults
			t = &base
			t.over(d.named[name])
			t.name = name
			all[name] = t
		}
		return t
	}
	if !p.IsRoot() || alone {
		for name := range d.named {
			if p.Scripts[name] != "" {
				begin(name)
			}
		}
	}
	for _, doc := range docs {
		for _, t := range doc.tasks {
			begin(t.name).over(t)
		}
	}
	return all
}

// broodTask resolves a task of a project.
func (w *Workspace) broodTask(p *Project, t *broodTask) (*Task, error) {
	task := &Task{}
	switch {
	case t.command != "":
		task.Command.Line = t.command
	case p.Scripts[t.name] != "":
		task.Command.Script = t.name
	case t.dependsOn == nil:
		return nil, t.file.Wrong(t.line, "task %s of %s has nothing to do: give it a command, or dependsOn to make it a group", t.name, p.Name)
	}
	d := &task.Definition
	d.Persistent, d.Interactive, d.Additive, d.Pin = is(t.persist), is(t.interact), is(t.additive), is(t.pin)
	d.Cache = !d.Persistent && !d.Interactive && !task.Command.Empty() && (t.cache == nil || *t.cache)
	if (d.Persistent || d.Interactive) && is(t.cache) {
		return nil, t.file.Wrong(t.line, "task %s cannot be cached: it is persistent or interactive", t.name)
	}
	d.Env, d.PassThrough, d.Define = sorted(t.env), sorted(t.pass), t.define
	d.OutputLogs, d.Timeout, d.CPU, d.Memory, d.Platform = t.logs, t.timeout, t.cpu, t.memory, t.platform
	if t.retries != nil {
		d.Retries = *t.retries
	}
	inputs := slices.DeleteFunc(slices.Clone(t.inputs), func(i item) bool { return i.text == tokenOwn })
	d.DefaultInputs = len(t.inputs) == 0 || len(inputs) < len(t.inputs)
	if !d.DefaultInputs && task.Command.Script != "" {
		inputs = append(inputs, item{text: manifestName}) // the script itself is in it
	}
	var err error
	if d.Inputs, err = t.globs(p, inputs, "inputs"); err != nil {
		return nil, err
	}
	if d.Outputs, err = t.globs(p, t.outputs, "outputs"); err != nil {
		return nil, err
	}
	task.DependsOn, task.With = t.refs(t.dependsOn), t.refs(t.with)
	return task, nil
}

func is(b *bool) bool { return b != nil && *b }

// globs checks globs and turns those that leave the project into ones from the
// root.
func (t *broodTask) globs(p *Project, items []item, field string) ([]string, error) {
	var all []string
	for _, in := range items {
		text, not := strings.CutPrefix(in.text, "!")
		switch rooted, ok := strings.CutPrefix(text, "/"); {
		case ok && inside(path.Clean(rooted)):
			text = "/" + path.Clean(rooted)
		case strings.HasPrefix(path.Clean(text), "..") && inside(path.Join(p.Dir, text)):
			text = "/" + path.Join(p.Dir, text)
		case text == "" || ok || !inside(path.Clean(text)):
			return nil, t.file.Wrong(in.line, "%s: %q leads out of the workspace", field, in.text)
		default:
			text = strings.TrimPrefix(text, "./")
		}
		if not {
			text = "!" + text
		}
		all = append(all, text)
	}
	return sorted(all), nil
}

func (t *broodTask) refs(items []item) []Ref {
	var refs []Ref
	for _, in := range items {
		ref := parseRef(in.text)
		ref.Where = t.file.At(in.line)
		refs = append(refs, ref)
	}
	return sortRefs(refs)
}

// checkRefs refuses references to tasks that are not there.
func (w *Workspace) checkRefs(p *Project, task *Task, t *broodTask, everywhere map[string]bool) error {
	for _, ref := range slices.Concat(task.DependsOn, task.With) {
		switch {
		case ref.Up && ref.Project == "" && everywhere[ref.Name]:
			continue
		case ref.Up:
			return errs.New(errs.InvalidArgument, "%s: %s: no project has a task %q%s", ref.Where, ref, ref.Name, didYouMean(ref.Name, slices.Sorted(maps.Keys(everywhere))))
		}
		of := p
		if ref.Project != "" {
			if of = w.byName[ref.Project]; of == nil {
				return errs.New(errs.InvalidArgument, "%s: %s: there is no project %q%s", ref.Where, ref, ref.Project, didYouMean(string(ref.Project), w.projectNames()))
			}
		}
		if found, err := w.Task(of, ref.Name); found == nil || err != nil {
			return errs.New(errs.InvalidArgument, "%s: task %s needs %s: project %s has no task %q%s",
				ref.Where, id.TaskOf(p.Name, t.name), ref, of.Name, ref.Name, didYouMean(ref.Name, w.TaskNames(of)))
		}
	}
	return nil
}
