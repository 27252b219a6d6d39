package graph_test

import (
	"fmt"
	"strings"
	"testing"

	"brood/internal/run/graph"
	"brood/internal/run/workspace"
)

// chain is one package with n tasks in a row.
func chain(t testing.TB, n int, close bool) *workspace.Workspace {
	var tasks strings.Builder
	for i := range n {
		fmt.Fprintf(&tasks, "%q:{\"dependsOn\":[%q]},\n", fmt.Sprintf("t%d", i), fmt.Sprintf("t%d", i+1))
	}
	last := ""
	if close {
		last = `"t0"`
	}
	return open(t, fmt.Sprintf("-- package.json --\n{\"name\":\"one\"}\n-- turbo.json --\n{\"tasks\":{%s\"t%d\":{\"dependsOn\":[%s]}}}\n", tasks.String(), n, last))
}

func TestLongChain(t *testing.T) {
	const n = 50_000
	g := build(t, chain(t, n, false), graph.Selection{Tasks: []string{"t0"}})
	if len(g.Tasks) != n+1 || g.Tasks[0].Name != fmt.Sprintf("t%d", n) || g.Tasks[n].Name != "t0" {
		t.Errorf("%d tasks from %s to %s", len(g.Tasks), g.Tasks[0].ID, g.Tasks[len(g.Tasks)-1].ID)
	}
	_, err := graph.Build(t.Context(), chain(t, n, true), graph.Selection{Tasks: []string{"t0"}})
	if err == nil || !strings.Contains(err.Error(), "in a circle") || len(err.Error()) > 1000 {
		t.Errorf("a long circle: %.200v", err)
	}
}

// TestLongWayPast: ^x goes past rows of projects that lack x, from each of
// them, in time that grows with their number, and round circles of them.
func TestLongWayPast(t *testing.T) {
	const n = 2_000
	var tree strings.Builder
	tree.WriteString("-- brood.yaml --\nprojects:\n")
	for i := range n {
		fmt.Fprintf(&tree, "  p%d: {dependencies: [p%d], tasks: {lint: {command: l, dependsOn: [^build]}}}\n", i, i+1)
	}
	fmt.Fprintf(&tree, "  p%d: {tasks: {build: b}}\n", n)
	fmt.Fprintf(&tree, "  c1: {dependencies: [c2], tasks: {lint: {command: l, dependsOn: [^build]}}}\n  c2: {dependencies: [c1, p%d]}\n", n)
	for i := range n + 1 {
		fmt.Fprintf(&tree, "-- p%d/x --\n", i)
	}
	tree.WriteString("-- c1/x --\n-- c2/x --\n")
	g := build(t, open(t, tree.String()), graph.Selection{Tasks: []string{"lint"}})
	for _, task := range g.Tasks {
		if task.Name == "lint" && (len(task.Deps) != 1 || string(task.Deps[0]) != fmt.Sprintf("p%d#build", n)) {
			t.Fatalf("%s needs %v", task.ID, task.Deps)
		}
	}
}

// layered is a turbo workspace of n packages in so many layers, each of which
// needs three of the layer below.
func layered(t testing.TB, n, layers int) *workspace.Workspace {
	var tree strings.Builder
	tree.WriteString("-- package.json --\n{\"name\":\"root\",\"packageManager\":\"npm@11.0.0\",\"workspaces\":[\"packages/*\"]}\n")
	tree.WriteString("-- turbo.json --\n{\"tasks\":{\"build\":{\"dependsOn\":[\"^build\"],\"outputs\":[\"dist/**\"]},\"test\":{\"dependsOn\":[\"build\"]},\"lint\":{\"dependsOn\":[\"^lint\"]}}}\n")
	width := n / layers
	for i := range n {
		var deps []string
		if i >= width {
			below := (i/width - 1) * width
			for k := range 3 {
				deps = append(deps, fmt.Sprintf("\"p%d\":\"*\"", below+(i+k*7)%width))
			}
		}
		fmt.Fprintf(&tree, "-- packages/p%d/package.json --\n{\"name\":\"p%d\",\"version\":\"1.0.0\",\"scripts\":{\"build\":\"b\",\"test\":\"t\",\"lint\":\"l\"},\"dependencies\":{%s}}\n", i, i, strings.Join(dedupe(deps), ","))
	}
	return open(t, tree.String())
}

func dedupe(all []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, s := range all {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

func benchmark(b *testing.B, packages, layers int) {
	w := layered(b, packages, layers)
	sel := graph.Selection{Tasks: []string{"build", "test", "lint"}}
	b.Run("graph", func(b *testing.B) {
		for b.Loop() {
			g, err := graph.Build(b.Context(), w, sel)
			if err != nil || len(g.Tasks) != 3*packages {
				b.Fatal(len(g.Tasks), err)
			}
		}
	})
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			if _, err := workspace.Open(w.Root); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkPackages1000(b *testing.B) { benchmark(b, 1000, 100) }

func BenchmarkTasks10000(b *testing.B) { benchmark(b, 3334, 34) }
