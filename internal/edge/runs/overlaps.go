package runs

import (
	"fmt"
	"path"
	"slices"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/cache"
	"brood/internal/run/cache/glob"
	"brood/internal/run/workspace"
)

// overlaps finds the tasks that add to another's outputs. Two that write the
// same files and do not wait for each other are refused in brood.yaml; turbo
// lets them be, and so does a run of its workspaces, with a warning: they take
// turns, and so they do with tasks of their projects that are not in this run.
func (p *parts) overlaps(s *session) error {
	all, err := cache.Overlaps(s.graph.Tasks)
	if err != nil {
		return err
	}
	p.additive, p.beside = map[id.Task]bool{}, map[id.Task][]id.Task{}
	for _, o := range all {
		switch {
		case o.Edge:
			p.additive[o.Second] = true
		case s.ws.Kind == workspace.Brood:
			return errs.New(errs.InvalidArgument, "tasks %s and %s write the same files and neither waits for the other: put one under the other's dependsOn, or narrow their outputs", o.First, o.Second)
		default:
			p.early = append(p.early, fmt.Sprintf("tasks %s and %s write the same files and neither waits for the other: they take turns, and of a file that both write it is chance whose stays", o.First, o.Second))
			p.beside[o.First] = append(p.beside[o.First], o.Second)
			p.beside[o.Second] = append(p.beside[o.Second], o.First)
		}
	}
	if s.ws.Kind == workspace.Turbo {
		if err := p.besideElsewhere(s); err != nil {
			return err
		}
	}
	for t, list := range p.beside {
		slices.Sort(list)
		p.beside[t] = slices.Compact(list)
	}
	for _, t := range s.graph.Tasks {
		if t.Additive {
			p.additive[t.ID] = true
		}
	}
	return nil
}

// besideElsewhere finds the tasks outside of this run that write the same files
// as one in it: of the same project, and of the root, whose outputs may lie in
// other projects.
func (p *parts) besideElsewhere(s *session) error {
	here := make(map[id.Task]bool, len(s.graph.Tasks))
	for _, t := range s.graph.Tasks {
		here[t.ID] = true
	}
	projects := make(map[id.Project]*workspace.Project, len(s.ws.Projects))
	byDir := make(map[string]*workspace.Project, len(s.ws.Projects))
	for _, w := range s.ws.Projects {
		projects[w.Name], byDir[w.Dir] = w, w
	}
	into := map[id.Project][]string{} // tasks of the root that write into a project
	if root := byDir["."]; root != nil {
		for _, name := range s.ws.TaskNames(root) {
			if o, err := s.ws.Task(root, name); err == nil && o != nil && o.Cache {
				for _, w := range foreign(byDir, &run.Task{Dir: ".", Definition: o.Definition}) {
					into[w.Name] = append(into[w.Name], name)
				}
			}
		}
	}
	plain := map[string][]string{} // of a task's name in projects that say nothing themselves
	for _, t := range s.graph.Tasks {
		w := projects[t.Project]
		if w == nil || !t.Cache || len(t.Outputs) == 0 {
			continue
		}
		list, known := plain[t.Name]
		if own := s.ws.Configures(w); own || !known {
			var err error
			if list, err = sameFiles(s.ws, w, s.ws.TaskNames(w), t); err != nil {
				return err
			}
			if !own {
				plain[t.Name] = list
			}
		}
		p.standBeside(s.ws, here, t, w, list)
		if names := into[t.Project]; len(names) > 0 {
			list, err := sameFiles(s.ws, byDir["."], names, t)
			if err != nil {
				return err
			}
			p.standBeside(s.ws, here, t, byDir["."], list)
		}
		for _, w := range foreign(byDir, t) {
			list, err := sameFiles(s.ws, w, s.ws.TaskNames(w), t)
			if err != nil {
				return err
			}
			p.standBeside(s.ws, here, t, w, list)
		}
	}
	return nil
}

// standBeside notes tasks of a project that are not in this run as beside one
// that is.
func (p *parts) standBeside(ws *workspace.Workspace, here map[id.Task]bool, t *run.Task, w *workspace.Project, names []string) {
	for _, name := range names {
		other := id.TaskOf(w.Name, name)
		if here[other] {
			continue
		}
		if o, err := ws.Task(w, name); err == nil && o != nil && !o.Command.Empty() {
			p.beside[t.ID] = append(p.beside[t.ID], other)
		}
	}
}

// foreign are the projects in whose folders the outputs of a task begin, its own
// left out.
func foreign(byDir map[string]*workspace.Project, t *run.Task) (all []*workspace.Project) {
	set, err := glob.New(t.Dir, t.Outputs)
	if err != nil {
		return nil // what is wrong with it is for its run to say
	}
	for _, base := range set.Bases() {
		for dir := base; dir != "." && dir != "" && dir != t.Dir; dir = path.Dir(dir) {
			if w := byDir[dir]; w != nil {
				all = append(all, w)
				break
			}
		}
	}
	return all
}

// sameFiles are those of some tasks of a project whose outputs overlap with those
// of one.
func sameFiles(ws *workspace.Workspace, w *workspace.Project, names []string, t *run.Task) (list []string, err error) {
	for _, name := range names {
		o, err := ws.Task(w, name)
		if err != nil || o == nil || id.TaskOf(w.Name, name) == t.ID || !o.Cache || len(o.Outputs) == 0 {
			continue // what is wrong with it is for a run of it to say
		}
		other := &run.Task{ID: id.TaskOf(w.Name, name), Dir: w.Dir, Definition: o.Definition}
		found, err := cache.Overlaps([]*run.Task{t, other})
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			list = append(list, name)
		}
	}
	return list, nil
}

func (p *parts) adds(t id.Task) bool { return p.additive[t] }

func (p *parts) besides(t id.Task) []id.Task { return p.beside[t] }
