package worker

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"brood/internal/run"
)

func names(t *testing.T, mode string, g run.Globals, d run.Definition, deny []string, environ ...string) string {
	t.Helper()
	g.EnvMode = mode
	v := taskVars(run.Order{Task: &run.Task{Definition: d}, Globals: g, Environ: environ}, parsePatterns(deny))
	return strings.Join(slices.Sorted(maps.Keys(v)), " ")
}

func TestIsolation(t *testing.T) {
	env := []string{
		"PATH=/bin", "HOME=/h", "FOO_A=1", "FOO_B=", "OTHER=1", "GITHUB_TOKEN=x", "BROOD_SECRET=1",
		"TURBO_TOKEN=t", "TURBO_UI=1", "CACHE_KEY=1", "A*B=star", "AXB=1", "=odd", "novalue",
	}
	g, d := run.Globals{}, run.Definition{}
	check := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s\nwant %s", what, got, want)
		}
	}
	check("strict", names(t, "strict", g, d, nil, env...), "GITHUB_TOKEN HOME PATH TURBO_UI")
	check("loose", names(t, "loose", g, d, []string{"CACHE_*"}, env...), "A*B AXB FOO_A FOO_B GITHUB_TOKEN HOME OTHER PATH TURBO_UI")

	d.Env = []string{"FOO_*", "!FOO_B"}
	check("env", names(t, "strict", g, d, nil, env...), "FOO_A GITHUB_TOKEN HOME PATH TURBO_UI")
	d = run.Definition{PassThrough: []string{"FOO_*", "!FOO_A", "!GITHUB_*"}}
	check("taken back", names(t, "strict", g, d, nil, env...), "FOO_B HOME PATH TURBO_UI")
	d = run.Definition{PassThrough: []string{`A\*B`}}
	check("escaped star", names(t, "strict", g, d, nil, env...), "A*B GITHUB_TOKEN HOME PATH TURBO_UI")
	g = run.Globals{Env: []string{"OTHER"}, PassThrough: []string{"FOO_*", "!FOO_B", "!HOME"}}
	check("global lists take back from themselves alone", names(t, "strict", g, run.Definition{}, nil, env...), "FOO_A GITHUB_TOKEN HOME OTHER PATH TURBO_UI")

	g = run.Globals{}
	d = run.Definition{PassThrough: []string{"*"}, Define: map[string]string{"BROOD_X": "1", "TURBO_TOKEN": "1", "D": "1"}}
	check("what no task sees", names(t, "strict", g, d, []string{"CACHE_KEY"}, env...), "A*B AXB D FOO_A FOO_B GITHUB_TOKEN HOME OTHER PATH TURBO_UI")
}

func TestMatchName(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"A", "A", true}, {"A", "AB", false}, {"A*", "A", true}, {"*", "", true}, {"", "", true}, {"", "A", false},
		{"*A*B*", "xAyBz", true}, {"*A*B*", "xByAz", false}, {`\*`, "*", true}, {`\*`, "A", false}, {`A\!B`, "A!B", true},
		{strings.Repeat("*a", 30) + "b", strings.Repeat("a", 5000), false},
	} {
		if got := matchName(c.pattern, c.name); got != c.want {
			t.Errorf("matchName(%q, %q) = %v", c.pattern, c.name, got)
		}
	}
}
