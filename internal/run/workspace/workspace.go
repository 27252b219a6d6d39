package workspace

import (
	"cmp"
	"slices"

	"brood/internal/base/id"
	"brood/internal/run"
)

// Kind is what defines the tasks of a workspace.
type Kind string

// The kinds, in the order in which they are looked for.
const (
	Brood   Kind = "brood.yaml"
	Turbo   Kind = "turbo.json"
	Scripts Kind = "package.json" // the scripts alone, of many packages
	Single  Kind = "single"       // the scripts alone, of one
)

// Workspace is a repository as its files describe it.
type Workspace struct {
	// Root is absolute, with links resolved.
	Root    string
	Kind    Kind
	Manager run.Manager
	// Lockfile is the package manager's, relative to the root; empty if there
	// is none.
	Lockfile string
	Globals  run.Globals
	// Projects are sorted by name; the root ("//") is among them.
	Projects []*Project
	// Shared are the projects that the root's package.json needs, directly or
	// not, in a turbo workspace: there every package needs them too, and their
	// files enter every key (Globals.Projects). Sorted by name.
	Shared []*Project
	// SinglePackage says that the root is the only project and its tasks are
	// named without it.
	SinglePackage bool
	// PassesThrough says how ^x goes on where a project has no task x: in a
	// workspace of brood.yaml past it, to that project's own dependencies.
	PassesThrough bool
	// Inference says that variables of known frameworks are declared by
	// themselves.
	Inference bool
	Warnings  []string
	// Settings are the parts of brood.yaml and turbo.json that speak of runs,
	// not of tasks.
	Settings Settings

	byName map[id.Project]*Project
	tasks  definer
}

// Settings of a run that a workspace's files may give; zero values are unset.
type Settings struct {
	// Concurrency is a number or a percentage of the cores.
	Concurrency string
	Brood       *RunSettings
}

// Project is a folder with tasks.
type Project struct {
	Name id.Project
	// Dir is relative to the root, with slashes; "." is the root.
	Dir string
	// Deps are the projects of the workspace that this one needs: sorted by name.
	Deps []*Project
	// Scripts are those of its package.json.
	Scripts map[string]string
	// External are the dependencies of its package.json that are not of the
	// workspace.
	External map[string]string
	// Framework is the one known framework that it uses, or "".
	Framework string
	manifest  *manifest
}

// IsRoot says whether the project is the root of the workspace.
func (p *Project) IsRoot() bool { return p.Name == id.RootProject }

// Task is what a workspace says of one task of one project. It is shared: read
// only.
type Task struct {
	run.Definition
	Command run.Command
	// DependsOn and With are sorted and without doubles.
	DependsOn []Ref
	With      []Ref
	// Excluded tasks are not run because their name is asked for: a package's
	// turbo.json says that it does not have them.
	Excluded bool
}

// Ref is a reference to tasks, as in dependsOn.
type Ref struct {
	// Up is ^name: the tasks of that name in the project's dependencies.
	Up bool
	// Project is empty for the project itself.
	Project id.Project
	Name    string
	// Where is the file and line that says it.
	Where string
}

// String is the reference as it is written.
func (r Ref) String() string {
	switch {
	case r.Up && r.Project != "":
		return "^" + string(id.TaskOf(r.Project, r.Name))
	case r.Up:
		return "^" + r.Name
	case r.Project != "":
		return string(id.TaskOf(r.Project, r.Name))
	}
	return r.Name
}

// definer knows the tasks of one kind of workspace.
type definer interface {
	// task returns nil where the workspace has no such task.
	task(p *Project, name string) (*Task, error)
	// names returns the names of a project's tasks, in any order.
	names(p *Project) []string
	// rooted says whether the root project has a task of that name that can be
	// run; others of its names may be defined for the projects alone.
	rooted(name string) bool
}

// Project returns the project of that name, or nil.
func (w *Workspace) Project(name id.Project) *Project { return w.byName[name] }

// Task returns what the workspace says of a task, nil where nothing defines it.
func (w *Workspace) Task(p *Project, name string) (*Task, error) {
	return w.tasks.task(p, name)
}

// TaskNames returns the names of all tasks that a project has, sorted.
func (w *Workspace) TaskNames(p *Project) []string {
	names := w.tasks.names(p)
	slices.Sort(names)
	return slices.Compact(names)
}

// Configures says that something is said of a project's tasks alone; else they
// are what every project has.
func (w *Workspace) Configures(p *Project) bool {
	t, ok := w.tasks.(*turbo)
	return !ok || p.IsRoot() || t.files[p.Name] != nil || t.scoped(p.Name)
}

// RootHas says whether the root project itself may run the task.
func (w *Workspace) RootHas(name string) bool { return w.tasks.rooted(name) }

// index sorts the projects and fills byName.
func (w *Workspace) index() {
	slices.SortFunc(w.Projects, func(a, b *Project) int { return cmp.Compare(a.Name, b.Name) })
	w.byName = make(map[id.Project]*Project, len(w.Projects))
	for _, p := range w.Projects {
		w.byName[p.Name] = p
		slices.SortFunc(p.Deps, func(a, b *Project) int { return cmp.Compare(a.Name, b.Name) })
	}
}

// shared fills Shared.
func (w *Workspace) shared() {
	seen := map[*Project]bool{}
	todo := slices.Clone(w.byName[id.RootProject].Deps)
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !seen[p] {
			seen[p] = true
			w.Shared = append(w.Shared, p)
			todo = append(todo, p.Deps...)
		}
	}
	slices.SortFunc(w.Shared, func(a, b *Project) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range w.Shared {
		w.Globals.Projects = append(w.Globals.Projects, p.Dir)
	}
}

// warn adds a warning, once.
func (w *Workspace) warn(message string) {
	if !slices.Contains(w.Warnings, message) {
		w.Warnings = append(w.Warnings, message)
	}
}
