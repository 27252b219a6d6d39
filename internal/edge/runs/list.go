package runs

import (
	"slices"

	"brood/internal/base/clean"
	"brood/internal/base/id"
	"brood/internal/edge/cli"
	"brood/internal/run/workspace"
)

// listedTask is a task name with the projects that have it.
type listedTask struct {
	Task     string       `json:"task"`
	Projects []id.Project `json:"projects"`
}

// listedProjects is how many projects a line names.
const listedProjects = 6

// listTasks is brood run without a task: what there is.
func (a *app) listTasks(w *workspace.Workspace) error {
	all, err := tasksOf(w)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.Value(struct {
			Root  string       `json:"root"`
			Kind  string       `json:"kind"`
			Tasks []listedTask `json:"tasks"`
		}{w.Root, string(w.Kind), all})
	}
	a.warnAll(w.Warnings)
	if len(all) == 0 {
		return a.Text("%s has no tasks: write scripts into package.json, or tasks into brood.yaml\n", clean.Text(w.Root))
	}
	rows := make([][]string, len(all))
	for i, t := range all {
		names := ""
		for j, p := range t.Projects[:min(listedProjects, len(t.Projects))] {
			if j > 0 {
				names += ", "
			}
			names += string(p)
		}
		if more := len(t.Projects) - listedProjects; more > 0 {
			names += ", " + cli.Plural(more, "more project")
		}
		rows[i] = []string{t.Task, names}
	}
	return cli.Table(a.Out, []string{"TASK", "PROJECTS"}, rows)
}

// taskNames are what a shell may complete: the names of tasks that are not
// given yet, and that can be typed. Where they cannot be read there are none.
func taskNames(f runFlags, given []string) (names []string) {
	s, err := openRun(f)
	if err != nil {
		return nil
	}
	all, err := tasksOf(s.ws)
	if err != nil {
		return nil
	}
	for _, t := range all {
		if !slices.Contains(given, t.Task) && clean.Text(t.Task) == t.Task {
			names = append(names, t.Task)
		}
	}
	return names
}

func tasksOf(w *workspace.Workspace) ([]listedTask, error) {
	projects := map[string][]id.Project{}
	for _, p := range w.Projects {
		for _, name := range w.TaskNames(p) {
			t, err := w.Task(p, name)
			if err != nil {
				return nil, err
			}
			if t != nil && !t.Excluded && !t.Command.Empty() {
				projects[name] = append(projects[name], p.Name)
			}
		}
	}
	all := make([]listedTask, 0, len(projects))
	for name, ps := range projects {
		all = append(all, listedTask{Task: name, Projects: ps})
	}
	slices.SortFunc(all, func(x, y listedTask) int {
		if len(x.Projects) != len(y.Projects) {
			return len(y.Projects) - len(x.Projects)
		}
		if x.Task < y.Task {
			return -1
		}
		return 1
	})
	return all, nil
}

func (a *app) warnAll(warnings []string) {
	for _, w := range warnings {
		a.warning(w)
	}
}
