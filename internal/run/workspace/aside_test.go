package workspace_test

import (
	"slices"
	"strings"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/run/workspace"
)

const (
	besideTurbo  = "-- package.json --\n{\"workspaces\":[\"packages/*\"],\"packageManager\":\"npm@10.0.0\"}\n-- turbo.json --\n{\"tasks\":{\"build\":{}}}\n"
	besideNpm    = "-- package.json --\n{\"workspaces\":[\"packages/*\"]}\n"
	besideSingle = "-- package.json --\n{\"scripts\":{\"build\":\"x\"}}\n"
)

// TestBroodYAMLBesideAnother: what a root's brood.yaml without projects says of
// the runs holds, the rest is named.
func TestBroodYAMLBesideAnother(t *testing.T) {
	for beside, ruling := range map[string]string{besideTurbo: "turbo.json", besideNpm: "package.json", besideSingle: "package.json"} {
		w := open(t, beside+`-- brood.yaml --
cache: {remote: "grpc://cache.example:9092", size: 2G}
env: [A]
tasks:
  x: y
`)
		if w.Kind == workspace.Brood || w.Settings.Brood == nil || w.Settings.Brood.Cache.Remote != "grpc://cache.example:9092" || w.Settings.Brood.Cache.Size == 0 {
			t.Errorf("%s: %s, %+v", ruling, w.Kind, w.Settings.Brood)
		}
		for _, want := range []string{"brood.yaml:2: env is not used", "brood.yaml:3: tasks is not used"} {
			if !slices.ContainsFunc(w.Warnings, func(s string) bool { return strings.HasPrefix(s, want) && strings.Contains(s, ruling) }) {
				t.Errorf("%s: no %q in %q", ruling, want, w.Warnings)
			}
		}
		if slices.ContainsFunc(w.Warnings, func(s string) bool { return strings.Contains(s, "cache") }) {
			t.Errorf("%s: %q", ruling, w.Warnings)
		}
		for text, want := range map[string]string{
			"# mine\nproject: [packages/*]":  "brood.yaml:2",
			"cache: {remot: \"grpc://a:1\"}": "remote",
			"cache:\n  remote: 5":            "brood.yaml:2",
			"tasks: {x: {comand: y}}":        "command",
		} {
			_, err := workspace.Open(tree(t, beside+"-- brood.yaml --\n"+text+"\n"))
			if !errs.Is(err, errs.InvalidArgument) || !strings.Contains(err.Error(), "brood.yaml:") || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q: %v", ruling, text, err)
			}
		}
		if w := open(t, beside+"-- brood.yaml --\n# nothing yet\n"); len(w.Warnings) > 0 {
			t.Errorf("%s: an empty one: %q", ruling, w.Warnings)
		}
	}
}
