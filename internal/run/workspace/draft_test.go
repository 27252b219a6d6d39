package workspace_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/run/workspace"
)

// TestDraftLoads: what init writes is read back, with the tasks that one would
// expect.
func TestDraftLoads(t *testing.T) {
	for _, c := range []struct {
		name, files string
		want        map[string]string
	}{
		{"packages", `
-- package.json --
{"workspaces":["packages/*","!packages/old"],"scripts":{"build":"x"}}
-- packages/a/package.json --
{"name":"a","scripts":{"build":"b","dev":"d","odd:name":"o","test":"t"}}
-- packages/old/package.json --
{"name":"old"}
`, map[string]string{"//": "[]", "a": "[build dev test]"}},
		{"pnpm", `
-- package.json --
{}
-- pnpm-workspace.yaml --
packages: ["libs/**", "!**/test/**"]
-- libs/x/y/package.json --
{"name":"y","scripts":{"lint":"l"}}
`, map[string]string{"//": "[]", "y": "[lint]"}},
		{"single", "-- package.json --\n{\"scripts\":{\"build\":\"b\",\"test\":\"t\",\"foo\":\"f\",\"start\":\"s\"}}\n", map[string]string{"//": "[build start test]"}},
		{"languages", `
-- Makefile --
VAR := x
.PHONY: all
build: dep
	@true
test::
lint := no
clean:
-- go.mod --
module x
-- tools/gen/go.mod --
module gen
-- crate/Cargo.toml --
-- node_modules/x/go.mod --
-- py/pyproject.toml --
[tool.pytest]
[tool.ruff]
`, map[string]string{"//": "[build clean lint test]", "tools/gen": "[build lint test]", "crate": "[build test]", "py": "[lint test]"}},
		{"packages of no workspace", "-- package.json --\n{\"scripts\":{\"build\":\"b\"}}\n-- web/package.json --\n{\"scripts\":{\"test\":\"t\",\"odd\":\"o\"}}\n-- web/fixtures/package.json --\nno JSON\n",
			map[string]string{"//": "[build]", "web": "[test]"}},
		{"nothing", "-- readme --\n", map[string]string{"//": "[]"}},
		{"odd names", "-- package.json --\n{\"workspaces\":[\"a b/*\"]}\n-- a b/c/package.json --\n{\"name\":\"c\"}\n-- y/go.mod --\n-- with space/go.mod --\n",
			map[string]string{"//": "[]", "c": "[]", "y": "[build lint test]", "with space": "[build lint test]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := tree(t, c.files)
			text, err := workspace.Draft(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "brood.yaml"), text, 0o644); err != nil {
				t.Fatal(err)
			}
			w, err := workspace.Open(dir)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			got := map[string]string{}
			for _, p := range w.Projects {
				got[string(p.Name)] = fmt.Sprint(w.TaskNames(p))
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%v, want %v\n%s", got, c.want, text)
			}
			if _, err := workspace.Draft(dir); errs.CodeOf(err) != errs.AlreadyExists {
				t.Errorf("a second one: %v", err)
			}
		})
	}
	if _, err := workspace.Draft(tree(t, "-- turbo.json --\n{}\n")); errs.CodeOf(err) != errs.AlreadyExists || !strings.Contains(err.Error(), "turbo.json") {
		t.Errorf("with a turbo.json: %v", err)
	}
}
