package graph

import (
	"context"
	"slices"
	"strings"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/workspace"
	"brood/internal/run/workspace/source"
)

// Build selects and orders the tasks of a run.
func Build(ctx context.Context, w *workspace.Workspace, sel Selection) (*Graph, error) {
	if len(sel.Tasks) == 0 {
		return nil, errs.New(errs.InvalidArgument, "no task is named: say which, such as `brood run build`")
	}
	g := &Graph{}
	b := &builder{w: w, sel: sel, index: map[key]int{}, nearest: map[key][]*workspace.Project{}, env: map[envKey][]string{}, graph: g}
	projects, all, err := b.choose(ctx)
	if err != nil {
		return nil, err
	}
	if all {
		projects = b.unfiltered(projects)
	}
	projects = b.withNamed(projects)
	for _, p := range projects {
		g.Projects = append(g.Projects, p.Name)
	}
	slices.Sort(g.Projects)
	if err := b.enter(projects); err != nil {
		return nil, err
	}
	if err := b.traverse(); err != nil {
		return nil, err
	}
	order, err := sortNodes(b.nodes)
	if err != nil {
		return nil, err
	}
	if err := b.checkPersistent(); err != nil {
		return nil, err
	}
	g.Tasks = b.tasks(order)
	g.index()
	return g, nil
}

// unfiltered returns the projects of a selection that nothing narrows: none
// where every task is named with its project, and the root with the others
// where it has a task of a name.
func (b *builder) unfiltered(projects []*workspace.Project) []*workspace.Project {
	if !slices.ContainsFunc(b.sel.Tasks, func(t string) bool { return !strings.Contains(t, "#") }) {
		return nil
	}
	root := b.w.Project(id.RootProject)
	if slices.ContainsFunc(b.sel.Tasks, func(t string) bool { return b.w.RootHas(nameOf(t)) }) && !slices.Contains(projects, root) {
		projects = append(projects, root)
	}
	return projects
}

// withNamed adds the projects that tasks are named with, whatever the filters
// say; as in turbo, the other names then mean theirs too.
func (b *builder) withNamed(projects []*workspace.Project) []*workspace.Project {
	for _, t := range b.sel.Tasks {
		of, _, named := strings.Cut(t, "#")
		p := b.w.Project(id.Project(of))
		if named && p != nil && !slices.Contains(projects, p) {
			projects = append(projects, p)
		}
	}
	return projects
}

func nameOf(task string) string { return task[strings.IndexByte(task, '#')+1:] }

// builder finds the tasks of a graph and their edges.
type builder struct {
	w     *workspace.Workspace
	sel   Selection
	graph *Graph
	nodes []*node
	index map[key]int // of nodes
	// allowed are the only tasks that edges may lead to, nil for all.
	allowed map[key]bool
	nearest map[key][]*workspace.Project
	env     map[envKey][]string
}

type key struct {
	project *workspace.Project
	name    string
}

func (k key) id() id.Task { return id.TaskOf(k.project.Name, k.name) }

type node struct {
	key
	id        id.Task
	task      *workspace.Task
	deps      []int
	with      []int
	requested bool
	// from is what says that the task is needed, for messages.
	from string
}

// add returns the index of a task's node, made when it is new.
func (b *builder) add(k key, from string) int {
	if at, ok := b.index[k]; ok {
		return at
	}
	at := len(b.nodes)
	b.index[k] = at
	b.nodes = append(b.nodes, &node{key: k, id: k.id(), from: from})
	return at
}

// enter makes the nodes that the selection names.
func (b *builder) enter(projects []*workspace.Project) error {
	names := slices.Clone(b.sel.Tasks)
	slices.Sort(names)
	names = slices.Compact(names)
	if b.sel.Only {
		b.allowed = map[key]bool{}
	}
	for _, name := range names {
		b.graph.names = append(b.graph.names, nameOf(name))
		found, err := b.enterName(name, projects)
		if err != nil {
			return err
		}
		if !found {
			if err := b.missing(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// enterName makes the nodes of one name in the chosen projects; found says
// that any of them knows the task.
func (b *builder) enterName(name string, projects []*workspace.Project) (found bool, err error) {
	of, task, named := strings.Cut(name, "#")
	if !named {
		task = name
	}
	for _, p := range projects {
		if named && p.Name != id.Project(of) {
			continue
		}
		k := key{p, task}
		if b.allowed != nil {
			b.allowed[k] = true
		}
		def, err := b.w.Task(p, task)
		if err != nil {
			return false, err
		}
		if def == nil || def.Excluded {
			continue
		}
		found = true
		if p.IsRoot() && !b.w.RootHas(task) {
			continue
		}
		n := b.nodes[b.add(k, "")]
		n.requested, n.task = true, def
	}
	return found, nil
}

// missing refuses a name that no project of the workspace knows. One that only
// projects outside of the selection know is fine: there is nothing to do.
func (b *builder) missing(name string) error {
	of, task, named := strings.Cut(name, "#")
	if !named {
		task = name
	} else if b.w.Project(id.Project(of)) == nil {
		return errs.New(errs.NotFound, "%s: there is no project %q%s", name, of, b.didYouMean(of, b.projectNames()))
	}
	var known []string
	for _, p := range b.w.Projects {
		if named && p.Name != id.Project(of) {
			continue
		}
		def, err := b.w.Task(p, task)
		if err != nil {
			return err
		}
		if def != nil && !def.Excluded {
			return nil
		}
		known = append(known, b.w.TaskNames(p)...)
	}
	if named {
		return errs.New(errs.NotFound, "project %s has no task %q%s", of, task, b.didYouMean(task, known))
	}
	return errs.New(errs.NotFound, "no project has a task %q%s", task, b.didYouMean(task, known))
}

func (b *builder) projectNames() []string {
	names := make([]string, len(b.w.Projects))
	for i, p := range b.w.Projects {
		names[i] = string(p.Name)
	}
	return names
}

func (b *builder) didYouMean(word string, names []string) string {
	near := source.Nearest(word, names)
	for _, n := range names {
		if strings.HasSuffix(n, "/"+word) { // a name without its scope
			near = n
		}
	}
	if near != "" {
		return ": did you mean " + near + "?"
	}
	return ""
}

// traverse follows the edges of all nodes, those it makes included.
func (b *builder) traverse() error {
	for at := 0; at < len(b.nodes); at++ {
		n := b.nodes[at]
		if err := b.define(n); err != nil {
			return err
		}
		for _, ref := range n.task.DependsOn {
			if err := b.follow(n, ref); err != nil {
				return err
			}
		}
		for _, ref := range n.task.With {
			k, err := b.refer(n, ref)
			if err != nil {
				return err
			}
			n.with = append(n.with, b.add(k, ref.Where))
		}
		slices.Sort(n.deps)
		n.deps = slices.Compact(n.deps)
	}
	return nil
}

// define looks the node's task up.
func (b *builder) define(n *node) error {
	if n.task == nil {
		var err error
		if n.task, err = b.w.Task(n.project, n.name); err != nil {
			return err
		}
	}
	if n.project.IsRoot() && !b.w.RootHas(n.name) {
		return errs.New(errs.NotFound, "%s needs %s, which turbo.json does not give the root: add a task \"//#%s\"", orSelection(n.from), n.id, n.name)
	}
	if n.task == nil {
		return errs.New(errs.NotFound, "%s needs %s, which nothing defines%s", orSelection(n.from), n.id, b.didYouMean(n.name, b.w.TaskNames(n.project)))
	}
	return nil
}

func orSelection(from string) string {
	if from == "" {
		return "the selection"
	}
	return from
}

// follow adds the edges of one reference.
func (b *builder) follow(n *node, ref workspace.Ref) error {
	if !ref.Up {
		k, err := b.refer(n, ref)
		if err != nil {
			return err
		}
		b.edge(n, k, ref.Where)
		return nil
	}
	if ref.Project != "" { // ^project#x: once for all dependencies
		if len(n.project.Deps) == 0 {
			return nil
		}
		k, err := b.refer(n, ref)
		if err == nil {
			b.edge(n, k, ref.Where)
		}
		return err
	}
	ups, err := b.upstream(n.project, ref)
	if err != nil {
		return err
	}
	for _, p := range ups {
		b.edge(n, key{p, ref.Name}, ref.Where)
	}
	return nil
}

func (b *builder) edge(n *node, k key, where string) {
	if b.allowed == nil || b.allowed[k] {
		n.deps = append(n.deps, b.add(k, where))
	}
}

// refer resolves a reference to one task.
func (b *builder) refer(n *node, ref workspace.Ref) (key, error) {
	if ref.Project == "" {
		return key{n.project, ref.Name}, nil
	}
	p := b.w.Project(ref.Project)
	if p == nil {
		return key{}, errs.New(errs.NotFound, "%s: %s: there is no project %q%s", ref.Where, ref, ref.Project, b.didYouMean(string(ref.Project), b.projectNames()))
	}
	return key{p, ref.Name}, nil
}

// checkPersistent refuses what waits for a task that does not end.
func (b *builder) checkPersistent() error {
	var first *node
	var on *node
	for _, n := range b.nodes {
		for _, d := range n.deps {
			dep := b.nodes[d]
			if dep.task.Persistent && !dep.task.Command.Empty() && (first == nil || n.id < first.id) {
				first, on = n, dep
			}
		}
	}
	if first == nil {
		return nil
	}
	return errs.New(errs.FailedPrecondition, "%s depends on %s, which is persistent and never ends: take it out of dependsOn, or name it under \"with\" to run beside it", first.id, on.id)
}

// tasks makes the tasks of the nodes in that order.
func (b *builder) tasks(order []int) []*run.Task {
	tasks := make([]*run.Task, len(order))
	ids := func(nodes []int) []id.Task {
		if len(nodes) == 0 {
			return nil
		}
		all := make([]id.Task, len(nodes))
		for i, n := range nodes {
			all[i] = b.nodes[n].id
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	for i, at := range order {
		n := b.nodes[at]
		t := &run.Task{
			ID: n.id, Project: n.project.Name, Name: n.name, Dir: n.project.Dir, Command: n.task.Command,
			Deps: ids(n.deps), With: ids(n.with), Requested: n.requested, Definition: n.task.Definition,
			Excluded: b.sel.ExcludeDependencies && !n.requested,
		}
		if len(b.sel.Args) > 0 && (n.requested || b.w.Kind == workspace.Turbo && slices.Contains(b.graph.names, n.name)) {
			t.Args = b.sel.Args
		}
		t.Env = b.envOf(n)
		tasks[i] = t
	}
	return tasks
}

type envKey struct {
	framework string
	declared  *string // the first of the declared names: lists are shared
	length    int
}

// envOf returns the declared variables of a task with those of its framework.
func (b *builder) envOf(n *node) []string {
	declared := n.task.Env
	if !b.w.Inference || b.sel.NoInference || n.project.Framework == "" {
		return declared
	}
	k := envKey{framework: n.project.Framework, length: len(declared)}
	if len(declared) > 0 {
		k.declared = &declared[0]
	}
	if all, ok := b.env[k]; ok {
		return all
	}
	all := append(n.project.InferredEnv(b.sel.Environ), declared...)
	slices.Sort(all)
	all = slices.Compact(all)
	b.env[k] = all
	return all
}
