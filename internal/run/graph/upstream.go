package graph

import (
	"slices"

	"brood/internal/base/errs"
	"brood/internal/run/workspace"
)

// upstream returns the projects that ^name of a project means: its direct
// dependencies, or, where the workspace passes through those that lack the
// task, the first ones on every way that have it.
func (b *builder) upstream(p *workspace.Project, ref workspace.Ref) ([]*workspace.Project, error) {
	if !b.w.PassesThrough {
		return p.Deps, nil
	}
	found, err := b.holders(key{p, ref.Name})
	if err != nil || len(found) > 0 {
		return found, err
	}
	for _, other := range b.w.Projects {
		if has, err := b.has(other, ref.Name); has || err != nil {
			return nil, err
		}
	}
	return nil, errs.New(errs.NotFound, "%s: %s: no project has a task %q%s", ref.Where, ref, ref.Name, b.didYouMean(ref.Name, b.allNames()))
}

func (b *builder) allNames() []string {
	var names []string
	for _, p := range b.w.Projects {
		names = append(names, b.w.TaskNames(p)...)
	}
	return names
}

func (b *builder) has(p *workspace.Project, name string) (bool, error) {
	t, err := b.w.Task(p, name)
	return t != nil && !t.Excluded, err
}

// holders walks the projects below k's without recursion. What is found for a
// project is kept, so that long rows of projects without the task are walked
// once; where projects depend on each other in a circle nothing is kept.
func (b *builder) holders(k key) ([]*workspace.Project, error) {
	type frame struct {
		project *workspace.Project
		next    int // of its dependencies
		found   map[*workspace.Project]bool
	}
	if known, ok := b.nearest[k]; ok {
		return known, nil
	}
	open := map[*workspace.Project]bool{k.project: true}
	stack := []frame{{project: k.project, found: map[*workspace.Project]bool{}}}
	for {
		top := &stack[len(stack)-1]
		if top.next == len(top.project.Deps) {
			list := sortedProjects(top.found)
			b.nearest[key{top.project, k.name}] = list
			delete(open, top.project)
			if len(stack) == 1 {
				return list, nil
			}
			stack = stack[:len(stack)-1]
			merge(stack[len(stack)-1].found, list)
			continue
		}
		dep := top.project.Deps[top.next]
		top.next++
		has, err := b.has(dep, k.name)
		switch {
		case err != nil:
			return nil, err
		case has:
			top.found[dep] = true
		case open[dep]:
			return b.flood(k)
		default:
			if known, ok := b.nearest[key{dep, k.name}]; ok {
				merge(top.found, known)
				continue
			}
			open[dep] = true
			stack = append(stack, frame{project: dep, found: map[*workspace.Project]bool{}})
		}
	}
}

// flood is holders for projects in a circle.
func (b *builder) flood(k key) ([]*workspace.Project, error) {
	found, seen := map[*workspace.Project]bool{}, map[*workspace.Project]bool{k.project: true}
	todo := []*workspace.Project{k.project}
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, dep := range p.Deps {
			has, err := b.has(dep, k.name)
			if err != nil {
				return nil, err
			}
			if has {
				found[dep] = true
			} else if !seen[dep] {
				seen[dep] = true
				todo = append(todo, dep)
			}
		}
	}
	list := sortedProjects(found)
	b.nearest[k] = list
	return list, nil
}

func merge(into map[*workspace.Project]bool, list []*workspace.Project) {
	for _, p := range list {
		into[p] = true
	}
}

func sortedProjects(set map[*workspace.Project]bool) []*workspace.Project {
	list := make([]*workspace.Project, 0, len(set))
	for p := range set {
		list = append(list, p)
	}
	slices.SortFunc(list, byName)
	return list
}
