package runs

import (
	"context"

	"brood/internal/base/id"
	"brood/internal/edge/cli"
	"brood/internal/run"
)

// dryTask is a task as --dry=json says it.
type dryTask struct {
	Task       id.Task        `json:"task"`
	Project    id.Project     `json:"project"`
	Directory  string         `json:"directory"`
	Command    string         `json:"command"`
	Key        run.Key        `json:"key"`
	Cache      string         `json:"cache"`
	Deps       []id.Task      `json:"dependencies"`
	Dependents []id.Task      `json:"dependents"`
	Requested  bool           `json:"requested"`
	Definition run.Definition `json:"definition"`
}

// dryRun says what would run.
func (a *app) dryRun(ctx context.Context, s *session, p *parts, f runFlags) (err error) {
	if err := p.open(ctx, a, s, f); err != nil {
		return err
	}
	tasks := make([]dryTask, 0, len(s.graph.Tasks))
	keyOf := map[id.Task]run.Key{}
	for _, t := range s.graph.Tasks {
		d, err := p.dryTask(ctx, s, t, keyOf)
		if err != nil {
			return err
		}
		if !t.Command.Empty() && !t.Excluded {
			tasks = append(tasks, d)
		}
	}
	if f.dry == "json" || a.JSON {
		return a.Value(struct {
			Root     string       `json:"root"`
			Projects []id.Project `json:"projects"`
			Warnings []string     `json:"warnings"`
			Tasks    []dryTask    `json:"tasks"`
		}{s.ws.Root, orEmpty(s.graph.Projects), orEmpty(s.warnings()), tasks})
	}
	a.warnAll(s.warnings())
	rows := make([][]string, len(tasks))
	for i, t := range tasks {
		rows[i] = []string{string(t.Task), t.Cache, t.Key.Short(), t.Command}
	}
	return cli.Table(a.Out, []string{"TASK", "CACHE", "KEY", "COMMAND"}, rows)
}

func (p *parts) dryTask(ctx context.Context, s *session, t *run.Task, keyOf map[id.Task]run.Key) (dryTask, error) {
	upstream := map[id.Task]run.Key{}
	for _, d := range t.Deps {
		upstream[d] = keyOf[d]
	}
	key, err := p.keys.Key(ctx, t, upstream)
	if err != nil {
		return dryTask{}, err
	}
	keyOf[t.ID] = key
	return dryTask{
		Task: t.ID, Project: t.Project, Directory: t.Dir, Command: commandLine(s, t), Key: key, Cache: p.answer(ctx, t, key),
		Deps: orEmpty(t.Deps), Dependents: orEmpty(s.graph.Dependents(t.ID)), Requested: t.Requested, Definition: t.Definition,
	}, nil
}

// commandLine is what a task's command is, as its author wrote it.
func commandLine(s *session, t *run.Task) string {
	if t.Command.Script == "" {
		return t.Command.Line
	}
	if p := s.ws.Project(t.Project); p != nil {
		if line := p.Scripts[t.Command.Script]; line != "" {
			return line
		}
	}
	return t.Command.Script
}

func orEmpty[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}
