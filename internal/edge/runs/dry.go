package runs

import (
	"context"

	"brood/internal/base/id"
	"brood/internal/edge/cli"
	"brood/internal/run"
	"brood/internal/run/cache"
	"brood/internal/run/cache/key"
)

// planned is a task of a dry run: its key, what went into it, and what the
// cache has.
type planned struct {
	*run.Task
	key   run.Key
	parts *key.Parts
	hit   *cache.Hit // nil: none
}

// dryRun says what would run.
func (a *app) dryRun(ctx context.Context, s *session, p *parts, f runFlags) (err error) {
	if err := p.open(ctx, a, s, f); err != nil {
		return err
	}
	tasks := make([]planned, 0, len(s.graph.Tasks))
	keyOf := map[id.Task]run.Key{}
	for _, t := range s.graph.Tasks {
		d, err := p.plan(ctx, t, keyOf)
		if err != nil {
			return err
		}
		if !t.Excluded {
			tasks = append(tasks, d)
		}
	}
	if f.dry == "json" || a.JSON {
		return a.Value(s.dryJSON(tasks))
	}
	a.warnAll(s.warnings())
	var rows [][]string
	for _, t := range tasks {
		if !t.Command.Empty() {
			rows = append(rows, []string{string(t.ID), t.answer(), t.key.Short(), s.commandLine(t.Task)})
		}
	}
	return cli.Table(a.Out, []string{"TASK", "CACHE", "KEY", "COMMAND"}, rows)
}

// plan makes a task's key from those of the tasks before it, and asks the
// cache for it.
func (p *parts) plan(ctx context.Context, t *run.Task, keyOf map[id.Task]run.Key) (planned, error) {
	upstream := map[id.Task]run.Key{}
	for _, d := range t.Deps {
		upstream[d] = keyOf[d]
	}
	k, err := p.keys.Key(ctx, t, upstream)
	if err != nil {
		return planned{}, err
	}
	keyOf[t.ID] = k
	d := planned{Task: t, key: k, parts: p.keys.parts[t.ID]}
	if t.Cache && !t.Command.Empty() {
		if hit, ok := p.cache.Lookup(ctx, t, k); ok {
			d.hit = hit
		}
	}
	return d, nil
}

// answer is what the cache says, for people.
func (t planned) answer() string {
	switch {
	case !t.Cache:
		return "off"
	case t.hit != nil:
		return "hit"
	}
	return "miss"
}

// commandLine is what a task's command is, as its author wrote it.
func (s *session) commandLine(t *run.Task) string {
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
