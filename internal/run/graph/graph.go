package graph

import (
	"slices"

	"brood/internal/base/id"
	"brood/internal/run"
)

// Selection says what the user wants to run.
type Selection struct {
	// Tasks are names, or project#name.
	Tasks []string
	// Args are the arguments after "--".
	Args []string
	// Filters are those of --filter, all of them together.
	Filters []string
	// Affected selects the projects that changed since Base, and their
	// dependents. An empty Base is found: TURBO_SCM_BASE, the base of a pull
	// request on GitHub, main, master, origin/HEAD; then TURBO_SCM_HEAD is up to
	// where commits count, for what is checked out.
	Affected bool
	Base     string
	// Only leaves out every task that is not of a selected project and a named
	// task, and the edges to it.
	Only bool
	// ExcludeDependencies keeps such tasks for their keys and marks them
	// Excluded.
	ExcludeDependencies bool
	// Dir is the folder the user is in, absolute: below the root it narrows the
	// selection to the projects there. Empty is the root.
	Dir string
	// Environ is the environment of the run: frameworks' variables and the base
	// of Affected depend on it.
	Environ []string
	// NoInference leaves out the variables of known frameworks.
	NoInference bool
}

// Graph is the tasks of a run.
type Graph struct {
	// Tasks come after all their dependencies.
	Tasks []*run.Task
	// Projects are those that the selection chose, sorted.
	Projects []id.Project
	// Warnings are for the user.
	Warnings []string

	byID       map[id.Task]*run.Task
	dependents map[id.Task][]id.Task
	names      []string // of the requested tasks, without their projects
}

// Task returns the task of that ID, or nil.
func (g *Graph) Task(t id.Task) *run.Task { return g.byID[t] }

// Dependents returns the tasks that wait for this one, sorted.
func (g *Graph) Dependents(t id.Task) []id.Task { return g.dependents[t] }

// index fills the maps of a graph with all its tasks.
func (g *Graph) index() {
	g.byID = make(map[id.Task]*run.Task, len(g.Tasks))
	g.dependents = make(map[id.Task][]id.Task, len(g.Tasks))
	for _, t := range g.Tasks {
		g.byID[t.ID] = t
		for _, d := range t.Deps {
			g.dependents[d] = append(g.dependents[d], t.ID)
		}
	}
	for _, all := range g.dependents {
		slices.Sort(all)
	}
}
