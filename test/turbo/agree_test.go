package turbo_test

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/graph"
	"brood/internal/run/workspace"
)

// selection reads turbo's arguments as ours.
func (r *repository) selection(t testing.TB, args []string) graph.Selection {
	t.Helper()
	sel := graph.Selection{Dir: filepath.Join(r.dir, r.at), Environ: r.env}
	for i := 0; i < len(args); i++ {
		name, value, _ := strings.Cut(args[i], "=")
		switch {
		case args[i] == "--":
			sel.Args = args[i+1:]
			return sel
		case args[i] == "-F":
			i++
			sel.Filters = append(sel.Filters, args[i])
		case name == "--filter":
			sel.Filters = append(sel.Filters, value)
		case args[i] == "--only":
			sel.Only = true
		case name == "--affected":
			sel.Affected = true
		case name == "--framework-inference":
			sel.NoInference = value == "false"
		case strings.HasPrefix(args[i], "-"):
			t.Fatalf("unknown flag %s", args[i])
		default:
			sel.Tasks = append(sel.Tasks, args[i])
		}
	}
	return sel
}

// ours builds the graph of the same selection.
func (r *repository) ours(t testing.TB, args []string) (*workspace.Workspace, *graph.Graph, error) {
	t.Helper()
	w, err := workspace.Open(filepath.Join(r.dir, r.at))
	if err != nil {
		return nil, nil, err
	}
	g, err := graph.Build(context.Background(), w, r.selection(t, args))
	return w, g, err
}

// agree asks both and compares.
func (r *repository) agree(t testing.TB, args []string) {
	t.Helper()
	want, refused := r.turbo(t, args)
	w, got, err := r.ours(t, args)
	switch {
	case want == nil && err == nil:
		t.Errorf("%v: turbo refuses it, brood does not:\n%s", args, refused)
		return
	case want == nil:
		t.Logf("%v: both refuse it: %v", args, err)
		return
	case err != nil:
		t.Errorf("%v: brood refuses what turbo takes: %v", args, err)
		return
	}
	if ours := lines(got.Projects); !slices.Equal(ours, sorted(want.Packages)) && !w.SinglePackage {
		t.Errorf("%v: projects %v, turbo has %v", args, ours, want.Packages)
	}
	parts := r.parts(t, w, got)
	theirs := map[string]dryTask{}
	for _, task := range want.Tasks {
		theirs[task.ID] = task
	}
	for _, task := range got.Tasks {
		name := r.name(w, task.ID)
		their, ok := theirs[name]
		if !ok {
			t.Errorf("%v: turbo has no task %s", args, name)
			continue
		}
		delete(theirs, name)
		what := fmt.Sprint(args, " ", name)
		r.compare(t, what, w, got, task, their)
		compareKey(t, what, task, parts[task.ID], their)
	}
	for name := range theirs {
		t.Errorf("%v: brood lacks the task %s", args, name)
	}
}

// name is a task's ID as turbo writes it.
func (r *repository) name(w *workspace.Workspace, t id.Task) string {
	if w.SinglePackage {
		return strings.TrimPrefix(string(t), "//#")
	}
	return string(t)
}

func (r *repository) names(w *workspace.Workspace, ids []id.Task) []string {
	names := []string{}
	for _, t := range ids {
		names = append(names, r.name(w, t))
	}
	return names
}

// compare compares one task.
func (r *repository) compare(t testing.TB, what string, w *workspace.Workspace, g *graph.Graph, task *run.Task, want dryTask) {
	t.Helper()
	p := w.Project(task.Project)
	command := "<NONEXISTENT>"
	if !task.Command.Empty() {
		command = p.Scripts[task.Command.Script]
	}
	same(t, what, "command", command, strings.Replace(want.Command, "<OPT OUT>", "<NONEXISTENT>", 1))
	same(t, what, "directory", strings.TrimPrefix(task.Dir, "."), strings.TrimPrefix(want.Directory, "."))
	same(t, what, "dependencies", r.names(w, task.Deps), sorted(want.Dependencies))
	same(t, what, "dependents", r.names(w, g.Dependents(task.ID)), sorted(want.Dependents))
	same(t, what, "with", r.names(w, task.With), qualified(task.Project, want.With))
	if len(task.Args) > 0 { // a dry run of turbo lists them at every task, a run hands them to those of the named tasks alone
		same(t, what, "arguments", task.Args, want.Args)
	}
	d := want.Definition
	same(t, what, "cache", task.Cache, d.Cache)
	same(t, what, "persistent", task.Persistent, d.Persistent)
	same(t, what, "interactive", task.Interactive, d.Interactive)
	logs := task.OutputLogs
	if logs == "" {
		logs = "full"
	}
	same(t, what, "output logs", logs, d.OutputLogs)
	same(t, what, "outputs", relative(p, task.Outputs), cleaned(d.Outputs))
	same(t, what, "inputs", relative(p, without(task.Inputs, task.DefaultInputs)), cleaned(d.Inputs))
	same(t, what, "pass-through variables", task.PassThrough, orNone(d.PassThrough))
	if want.Framework != "" {
		same(t, what, "framework", p.Framework, want.Framework)
	}
}

// qualified writes the project before names without one.
func qualified(p id.Project, names []string) []string {
	all := []string{}
	for _, n := range names {
		if !strings.Contains(n, "#") {
			n = string(id.TaskOf(p, n))
		}
		all = append(all, n)
	}
	return sorted(all)
}

func orNone(all []string) []string {
	if len(all) == 0 {
		return nil
	}
	return sorted(all)
}

// without takes away what every task without default inputs gets.
func without(globs []string, defaults bool) []string {
	if defaults {
		return globs
	}
	return slices.DeleteFunc(slices.Clone(globs), func(g string) bool {
		return g == "package.json" || g == "turbo.json" || g == "turbo.jsonc"
	})
}

// relative writes globs from the root as turbo does: from the project.
func relative(p *workspace.Project, globs []string) []string {
	all := []string{}
	for _, g := range globs {
		text, not := strings.CutPrefix(g, "!")
		if rooted, ok := strings.CutPrefix(text, "/"); ok {
			up, err := filepath.Rel("/"+p.Dir, "/"+rooted)
			if err != nil {
				panic(err)
			}
			text = up
		}
		if not {
			text = "!" + text
		}
		all = append(all, text)
	}
	return sorted(all)
}

// cleaned drops turbo's dots in "./../..".
func cleaned(globs []string) []string {
	all := []string{}
	for _, g := range globs {
		text, not := strings.CutPrefix(g, "!")
		if strings.HasPrefix(text, "../") || strings.HasPrefix(text, "./") {
			text = path.Clean(text)
		}
		if not {
			text = "!" + text
		}
		all = append(all, text)
	}
	return sorted(all)
}

func keys(values []string) []string {
	var all []string
	for _, v := range values {
		name, _, _ := strings.Cut(v, "=")
		all = append(all, name)
	}
	return all
}

func lines(names []id.Project) []string {
	all := []string{}
	for _, n := range names {
		all = append(all, string(n))
	}
	return all
}

func sorted(all []string) []string {
	out := slices.Concat([]string{}, all)
	slices.Sort(out)
	return slices.Compact(out)
}

func same(t testing.TB, what, field string, got, want any) {
	t.Helper()
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("%s: %s: %q, turbo has %q", what, field, got, want)
	}
}
