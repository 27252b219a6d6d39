package turbo_test

import (
	"path"
	"slices"
	"testing"

	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/cache/files"
	"brood/internal/run/cache/key"
	"brood/internal/run/graph"
	"brood/internal/run/workspace"
)

// parts computes the keys of all tasks and returns what they were made of.
func (r *repository) parts(t testing.TB, w *workspace.Workspace, g *graph.Graph) map[id.Task]*key.Parts {
	t.Helper()
	snapshot, err := files.Read(t.Context(), files.Config{Root: w.Root})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := snapshot.Close(); err != nil {
			t.Error(err)
		}
	}()
	keyer, err := key.New(t.Context(), key.Config{
		Files: snapshot, Manager: w.Manager, Lockfile: w.Lockfile, Globals: w.Globals, Environ: r.env, Task: g.Task,
	})
	if err != nil {
		t.Fatal(err)
	}
	all := map[id.Task]*key.Parts{}
	keys := map[id.Task]run.Key{}
	for _, task := range g.Tasks {
		k, p, err := keyer.Key(t.Context(), task, keys)
		if err != nil {
			t.Fatal(err)
		}
		keys[task.ID], all[task.ID] = k, p
	}
	return all
}

// compareKey compares which files and variables decide about a task.
func compareKey(t testing.TB, what string, task *run.Task, parts *key.Parts, want dryTask) {
	t.Helper()
	var inputs, variables []string
	for _, g := range parts.Groups {
		for _, item := range g.Items {
			switch {
			case g.Name == key.FilesGroup:
				inputs = append(inputs, item.Name)
			case g.Name == key.EnvGroup && item.Value != "unset":
				variables = append(variables, item.Name)
			}
		}
	}
	their := []string{}
	for name := range want.Inputs {
		their = append(their, path.Join(task.Dir, name))
	}
	same(t, what, "input files", sorted(inputs), sorted(their))
	same(t, what, "variables", sorted(variables), sorted(slices.Concat(keys(want.Environment.Configured), keys(want.Environment.Inferred))))
}
