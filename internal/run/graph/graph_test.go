package graph_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/run/graph"
	"brood/internal/run/workspace"
)

// open writes a tree and opens the workspace in it.
func open(t testing.TB, tree string) *workspace.Workspace {
	t.Helper()
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(tree)).Files {
		put(t, dir, f.Name, string(f.Data))
	}
	w, err := workspace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func put(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func build(t testing.TB, w *workspace.Workspace, sel graph.Selection) *graph.Graph {
	t.Helper()
	g, err := graph.Build(t.Context(), w, sel)
	if err != nil {
		t.Fatal(err)
	}
	checkOrder(t, g)
	return g
}

// checkOrder: every task comes after its dependencies, which are sorted and
// there, and the maps agree with the list.
func checkOrder(t testing.TB, g *graph.Graph) {
	t.Helper()
	seen := map[id.Task]bool{}
	for _, task := range g.Tasks {
		if !slices.IsSorted(task.Deps) || len(slices.Compact(slices.Clone(task.Deps))) != len(task.Deps) {
			t.Fatalf("%s: deps are not sorted: %v", task.ID, task.Deps)
		}
		for _, d := range task.Deps {
			if !seen[d] || g.Task(d) == nil || !slices.Contains(g.Dependents(d), task.ID) {
				t.Fatalf("%s comes before %s", task.ID, d)
			}
		}
		if seen[task.ID] || g.Task(task.ID) != task {
			t.Fatalf("%s is there twice", task.ID)
		}
		seen[task.ID] = true
	}
}

func edges(g *graph.Graph) string {
	var all []string
	for _, t := range g.Tasks {
		line := string(t.ID)
		if t.Excluded {
			line = "(" + line + ")"
		}
		for _, d := range t.Deps {
			line += " " + string(d)
		}
		all = append(all, line)
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

const brood = `
-- brood.yaml --
projects:
  "*/*": {}
  libs/low: {tasks: {build: "make low"}}
  libs/mid: {dependencies: [libs/low]}
  libs/top: {dependencies: [libs/mid], tasks: {build: {command: make top, dependsOn: [^build]}}}
  apps/app:
    dependencies: [libs/top, libs/mid]
    tasks:
      build: {command: make app, dependsOn: [^build]}
      test: {command: make test, dependsOn: [build]}
      all: {dependsOn: [test, build, "libs/low#build"]}
tasks:
  check: {command: ./check, dependsOn: [apps/app#all]}
-- libs/low/x --
-- libs/mid/x --
-- libs/top/x --
-- apps/app/x --
`

func TestUpPassesThroughProjectsWithoutTheTask(t *testing.T) {
	g := build(t, open(t, brood), graph.Selection{Tasks: []string{"build"}})
	want := "apps/app#build libs/low#build libs/top#build\nlibs/low#build\nlibs/top#build libs/low#build"
	if got := edges(g); got != want {
		t.Errorf("edges:\n%s\nwant\n%s", got, want)
	}
}

func TestRootTasksAndGroups(t *testing.T) {
	w := open(t, brood)
	g := build(t, w, graph.Selection{Tasks: []string{"check"}, Args: []string{"--x"}})
	want := "//#check apps/app#all\napps/app#all apps/app#build apps/app#test libs/low#build\napps/app#build libs/low#build libs/top#build\n" +
		"apps/app#test apps/app#build\nlibs/low#build\nlibs/top#build libs/low#build"
	if got := edges(g); got != want {
		t.Errorf("edges:\n%s\nwant\n%s", got, want)
	}
	for _, task := range g.Tasks {
		named := task.ID == "//#check"
		if task.Requested != named || (len(task.Args) > 0) != named {
			t.Errorf("%s: requested %v with %v", task.ID, task.Requested, task.Args)
		}
	}
	if !g.Task("apps/app#all").Command.Empty() {
		t.Error("a group has a command")
	}
}

func TestOnlyAndExcludeDependencies(t *testing.T) {
	w := open(t, brood)
	only := build(t, w, graph.Selection{Tasks: []string{"test", "build"}, Filters: []string{"apps/app"}, Only: true})
	if got := edges(only); got != "apps/app#build\napps/app#test apps/app#build" {
		t.Errorf("--only:\n%s", got)
	}
	excluded := build(t, w, graph.Selection{Tasks: []string{"test"}, Filters: []string{"apps/app"}, ExcludeDependencies: true})
	want := "(apps/app#build) libs/low#build libs/top#build\n(libs/low#build)\n(libs/top#build) libs/low#build\napps/app#test apps/app#build"
	if got := edges(excluded); got != want {
		t.Errorf("--exclude-dependencies:\n%s\nwant\n%s", got, want)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name, tree string
		sel        graph.Selection
		code       errs.Code
		says       string
	}{
		{"nothing named", brood, graph.Selection{}, errs.InvalidArgument, "no task is named"},
		{"misspelt", brood, graph.Selection{Tasks: []string{"biuld"}}, errs.NotFound, "did you mean build?"},
		{"unknown project", brood, graph.Selection{Tasks: []string{"libs/tpo#build"}}, errs.NotFound, "did you mean libs/top?"},
		{"not of the project", brood, graph.Selection{Tasks: []string{"libs/low#test"}}, errs.NotFound, `project libs/low has no task "test"`},
		{"unknown filter", brood, graph.Selection{Tasks: []string{"build"}, Filters: []string{"libs/lwo"}}, errs.NotFound, "did you mean libs/low?"},
		{"broken filter", brood, graph.Selection{Tasks: []string{"build"}, Filters: []string{"[x"}}, errs.InvalidArgument, "cannot be read"},
		{"no repository", brood, graph.Selection{Tasks: []string{"build"}, Filters: []string{"[HEAD]"}}, errs.FailedPrecondition, "git"},
		{"a dash", brood, graph.Selection{Tasks: []string{"build"}, Affected: true, Base: "--output=x"}, errs.InvalidArgument, "dash"},
		{"circle", "-- brood.yaml --\nprojects: []\ntasks:\n  a: {dependsOn: [b]}\n  b: {dependsOn: [c]}\n  c: {dependsOn: [a]}\n  z: {dependsOn: [b]}\n",
			graph.Selection{Tasks: []string{"z"}}, errs.FailedPrecondition, "//#a → //#b → //#c → //#a"},
		{"itself", "-- brood.yaml --\nprojects: []\ntasks:\n  a: {dependsOn: [a]}\n", graph.Selection{Tasks: []string{"a"}}, errs.FailedPrecondition, "//#a depends on itself"},
		{"persistent", "-- brood.yaml --\nprojects: []\ntasks:\n  a: {dependsOn: [dev]}\n  dev: {command: serve, persistent: true}\n",
			graph.Selection{Tasks: []string{"a"}}, errs.FailedPrecondition, `//#a depends on //#dev, which is persistent`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := graph.Build(t.Context(), open(t, c.tree), c.sel)
			if errs.CodeOf(err) != c.code || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("%v (%v), want %v with %q", err, errs.CodeOf(err), c.code, c.says)
			}
		})
	}
}

func TestAffectedOutsideOfGitIsEverything(t *testing.T) {
	g := build(t, open(t, brood), graph.Selection{Tasks: []string{"build"}, Affected: true})
	if len(g.Tasks) != 3 || len(g.Warnings) != 1 || !strings.Contains(g.Warnings[0], "every project counts as changed") {
		t.Errorf("%d tasks, warnings %q", len(g.Tasks), g.Warnings)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := graph.Build(ctx, open(t, brood), graph.Selection{Tasks: []string{"build"}, Affected: true})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want canceled", err)
	}
}

func TestTheSameEveryTime(t *testing.T) {
	w := open(t, brood)
	first := build(t, w, graph.Selection{Tasks: []string{"check", "build"}})
	for range 10 {
		again := build(t, w, graph.Selection{Tasks: []string{"build", "check"}})
		for i := range first.Tasks {
			if first.Tasks[i].ID != again.Tasks[i].ID {
				t.Fatalf("task %d is %s, then %s", i, first.Tasks[i].ID, again.Tasks[i].ID)
			}
		}
	}
}
