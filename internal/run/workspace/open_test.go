package workspace_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/run/workspace"
)

// tree writes the files of an archive and returns their folder.
func tree(t testing.TB, archive string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range txtar.Parse([]byte(archive)).Files {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func open(t testing.TB, archive string) *workspace.Workspace {
	t.Helper()
	w, err := workspace.Open(tree(t, archive))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestRoot(t *testing.T) {
	dir := tree(t, `
-- brood/brood.yaml --
projects: [packages/*]
-- brood/packages/a/brood.yaml --
tasks: {x: y}
-- brood/packages/a/src/f --
-- turbo/package.json --
{"workspaces":["packages/*"]}
-- turbo/turbo.json --
{"tasks":{}}
-- turbo/packages/a/package.json --
{"name":"a"}
-- turbo/packages/a/turbo.json --
{"extends":["//"],"tasks":{}}
-- npm/package.json --
{"workspaces":["packages/*"]}
-- npm/packages/a/package.json --
{"name":"a"}
-- pnpm/package.json --
{}
-- pnpm/pnpm-workspace.yaml --
packages: [packages/*]
-- pnpm/packages/a/package.json --
{"name":"a"}
-- single/package.json --
{"scripts":{"build":"x"}}
-- single/src/f --
-- lone/brood.yaml --
tasks: {x: y}
-- both/package.json --
{"workspaces":["packages/*"]}
-- both/turbo.json --
{"tasks":{}}
-- both/brood.yaml --
projects: []
-- both/inner/turbo.json --
{"tasks":{}}
-- none/f --
`)
	for _, c := range []struct {
		at, root string
		kind     workspace.Kind
	}{
		{"brood", "brood", workspace.Brood}, {"brood/packages/a/src", "brood", workspace.Brood},
		{"turbo", "turbo", workspace.Turbo}, {"turbo/packages/a", "turbo", workspace.Turbo},
		{"npm/packages/a", "npm", workspace.Scripts}, {"pnpm/packages/a", "pnpm", workspace.Scripts},
		{"single/src", "single", workspace.Single}, {"lone", "lone", workspace.Brood}, {"both/inner", "both", workspace.Brood},
	} {
		w, err := workspace.Open(filepath.Join(dir, c.at))
		if err != nil || w.Root != filepath.Join(dir, c.root) || w.Kind != c.kind {
			t.Errorf("%s: %+v, %v; want %s of kind %s", c.at, w, err, c.root, c.kind)
		}
	}
	if _, err := workspace.Open(filepath.Join(dir, "none")); errs.CodeOf(err) != errs.NotFound || !strings.Contains(err.Error(), "brood init") {
		t.Errorf("none: %v", err)
	}
	if _, err := workspace.Open(filepath.Join(dir, "gone")); errs.CodeOf(err) != errs.NotFound {
		t.Errorf("gone: %v", err)
	}
}

func TestLinkedPackagesAreNamed(t *testing.T) {
	dir := tree(t, `
-- package.json --
{"workspaces":["packages/*"]}
-- turbo.json --
{"tasks":{}}
-- packages/a/package.json --
{"name":"a"}
-- ext/b/package.json --
{"name":"b"}
`)
	if err := os.Symlink("../ext/b", filepath.Join(dir, "packages/b")); err != nil {
		t.Fatal(err)
	}
	w, err := workspace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(w.Warnings, "\n"); !strings.Contains(all, "packages/b is a link to a package and is left out") {
		t.Errorf("warnings: %q", all)
	}
}

func TestManager(t *testing.T) {
	for _, c := range []struct{ files, name, version, lockfile string }{
		{"-- package.json --\n{\"packageManager\":\"pnpm@9.1.2+sha512.abc\"}\n-- pnpm-lock.yaml --\n", "pnpm", "9.1.2", "pnpm-lock.yaml"},
		{"-- package.json --\n{\"devEngines\":{\"packageManager\":{\"name\":\"yarn\",\"version\":\"4.1.0\"}}}\n-- yarn.lock --\n", "yarn", "4.1.0", "yarn.lock"},
		{"-- package.json --\n{\"devEngines\":{\"packageManager\":[{\"name\":\"npm\",\"version\":\"^11.2.0\"}]}}\n", "npm", "11.2.0", ""},
		{"-- package.json --\n{}\n-- package-lock.json --\n{}\n", "npm", "", "package-lock.json"},
		{"-- package.json --\n{}\n-- npm-shrinkwrap.json --\n{}\n", "npm", "", "npm-shrinkwrap.json"},
		{"-- package.json --\n{}\n-- yarn.lock --\n# yarn lockfile v1\n", "yarn", "1", "yarn.lock"},
		{"-- package.json --\n{}\n-- yarn.lock --\n__metadata:\n  version: 8\n", "yarn", "4", "yarn.lock"},
		{"-- package.json --\n{}\n-- pnpm-lock.yaml --\nlockfileVersion: '9.0'\n", "pnpm", "9", "pnpm-lock.yaml"},
		{"-- package.json --\n{}\n-- pnpm-lock.yaml --\nlockfileVersion: 5.4\n", "pnpm", "7", "pnpm-lock.yaml"},
		{"-- package.json --\n{}\n-- bun.lockb --\nx\n", "bun", "", "bun.lockb"},
		{"-- package.json --\n{}\n", "npm", "", ""},
	} {
		w := open(t, c.files)
		if w.Manager.Name != c.name || w.Manager.Version != c.version || w.Lockfile != c.lockfile {
			t.Errorf("%s: %+v with %q; want %s %s with %q", c.files, w.Manager, w.Lockfile, c.name, c.version, c.lockfile)
		}
	}
}

func TestWrongFiles(t *testing.T) {
	const turbo = "-- package.json --\n{\"workspaces\":[\"p/*\"]}\n-- p/a/package.json --\n{\"name\":\"a\",\"scripts\":{\"build\":\"x\"}}\n"
	for _, c := range []struct{ name, files, says string }{
		{"broken json", turbo + "-- turbo.json --\n{\n\"tasks\": {,}}\n", "turbo.json:2: is not JSON"},
		{"twice", turbo + "-- turbo.json --\n{\"tasks\":{\n\"a\":{},\n\"a\":{}}}\n", `turbo.json:3: "a" is there twice`},
		{"wrong type", turbo + "-- turbo.json --\n{\"tasks\":{\"build\":{\n\"cache\":\"no\"}}}\n", "turbo.json:2: tasks.build.cache takes true or false, this is a string"},
		{"turbo 1", turbo + "-- turbo.json --\n{\n\n\"pipeline\":{}}\n", `turbo.json:3: "pipeline" is of turbo 1`},
		{"no package.json", "-- turbo.json --\n{}\n", "no package.json"},
		{"package.json", "-- package.json --\n{\n\"scripts\":{\"a\":1}}\n", "package.json:2: scripts is a number"},
		{"package.json syntax", "-- package.json --\n{\n\n\"scripts\":}\n", "package.json:3: is not JSON"},
		{"two lockfiles", "-- package.json --\n{}\n-- yarn.lock --\n-- package-lock.json --\n", "more than one lockfile (package-lock.json, yarn.lock)"},
		{"manager", "-- package.json --\n{\"packageManager\":\"cargo@1.0.0\"}\n", `packageManager is "cargo@1.0.0"`},
		{"same names", "-- package.json --\n{\"workspaces\":[\"p/*\"]}\n-- p/a/package.json --\n{\"name\":\"x\"}\n-- p/b/package.json --\n{\"name\":\"x\"}\n", `p/a and p/b are both named "x"`},
		{"key", "-- brood.yaml --\nprojects: []\n\ntaks: {}\n", `brood.yaml:3: unknown key "taks" at the top: did you mean "tasks"?`},
		{"task key", "-- brood.yaml --\nprojects: []\ntasks:\n  a:\n    command: x\n    dependOn: [b]\n", `brood.yaml:5: unknown key "dependOn" in tasks.a: did you mean "dependsOn"?`},
		{"reference", "-- brood.yaml --\nprojects: []\ntasks:\n  build: x\n  test:\n    command: x\n    dependsOn:\n      - biuld\n", `brood.yaml:7: task //#test needs biuld: project // has no task "biuld": did you mean build?`},
		{"reference up", "-- brood.yaml --\nprojects: []\ntasks:\n  build: {command: x, dependsOn: [^buidl]}\n", `brood.yaml:3: ^buidl: no project has a task "buidl": did you mean build?`},
		{"reference out", "-- brood.yaml --\nprojects: {apps/web: {tasks: {build: x}}}\ntasks:\n  build: {command: x, dependsOn: [\"apps/wbe#build\"]}\n-- apps/web/x --\n", `brood.yaml:3: apps/wbe#build: there is no project "apps/wbe": did you mean apps/web?`},
		{"dependency", "-- brood.yaml --\nprojects:\n  web: {dependencies: [aip]}\n  api: {tasks: {x: y}}\n-- web/go.mod --\n-- api/x --\n", `brood.yaml:2: dependencies: there is no project "aip": did you mean api?`},
		{"nothing to do", "-- brood.yaml --\nprojects: []\ntasks:\n  build: {cache: true}\n", "brood.yaml:3: task build of // has nothing to do"},
		{"no folder", "-- brood.yaml --\nprojects:\n  nowhere/x: {tasks: {x: y}}\n", `brood.yaml:2: projects: there is no folder "nowhere/x"`},
		{"outside", "-- brood.yaml --\nprojects: []\ntasks:\n  a: {command: x, inputs: [../x]}\n", `brood.yaml:3: inputs: "../x" leads out of the workspace`},
		{"root key below", "-- brood.yaml --\nprojects: [p]\n-- p/brood.yaml --\nrelay: https://x.example\n", `p/brood.yaml:1: "relay" belongs into the brood.yaml of the root`},
		{"cached and persistent", "-- brood.yaml --\nprojects: []\ntasks:\n  a: {command: x, persistent: true, cache: true}\n", "cannot be cached"},
		{"yaml", "-- brood.yaml --\nprojects: []\ntasks: [\n", "brood.yaml:2: is not YAML"},
		{"two documents", "-- brood.yaml --\nprojects: []\n---\ntasks: {}\n", "more than one document"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := workspace.Open(tree(t, c.files))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v\nwant something with %s", err, c.says)
			}
		})
	}
}

func TestUnknownKeysOfTurboAreWarnings(t *testing.T) {
	w := open(t, "-- package.json --\n{\"name\":\"x\"}\n-- turbo.json --\n{\"tasks\":{\n\"build\":{\"output\":[]}},\n\"globalEnvs\":[]}\n")
	want := []string{`turbo.json:2: unknown key "output" in tasks.build: did you mean "outputs"?`, `turbo.json:3: unknown key "globalEnvs" at the top: did you mean "globalEnv"?`}
	if !slices.Equal(w.Warnings, want) {
		t.Errorf("%q, want %q", w.Warnings, want)
	}
}

func TestBrood(t *testing.T) {
	w := open(t, `
-- brood.yaml --
projects:
  packages/*: {}
  "!packages/old": {}
  services/*:
    tasks:
      test: {command: generic}
  services/api:
    name: api
    dependencies: ["@x/lib"]
    tasks:
      test: {command: go test ./..., inputs: [$DEFAULT$, "!*.md", ../shared/**], retries: 3}
defaults:
  timeout: 5m
  env: [CI]
  tasks:
    build: {dependsOn: [^build], outputs: [dist/**], memory: 2G}
    lint: {env: []}
env: [B, A]
tasks:
  all: {dependsOn: ["api#test"]}
-- package.json --
{"name":"root","scripts":{"build":"brood run build"}}
-- packages/lib/package.json --
{"name":"@x/lib","version":"1.0.0","scripts":{"build":"tsc","lint":"eslint","other":"x"}}
-- packages/app/package.json --
{"name":"@x/app","dependencies":{"@x/lib":"^1.0.0"},"scripts":{"build":"vite build"}}
-- packages/app/brood.yaml --
tasks:
  build: {outputs: [out/**]}
-- packages/old/package.json --
{"name":"@x/old"}
-- packages/nothing/readme --
-- services/api/x --
-- services/web/x --
`)
	names := map[string]string{}
	for _, p := range w.Projects {
		var deps []string
		for _, d := range p.Deps {
			deps = append(deps, string(d.Name))
		}
		names[string(p.Name)] = fmt.Sprint(p.Dir, " ", deps, " ", w.TaskNames(p))
	}
	want := map[string]string{
		"//": ". [] [all]", "@x/lib": "packages/lib [] [build lint]", "@x/app": "packages/app [@x/lib] [build]",
		"api": "services/api [@x/lib] [test]", "services/web": "services/web [] [test]",
	}
	if fmt.Sprint(names) != fmt.Sprint(want) {
		t.Errorf("projects:\n%v\nwant\n%v", names, want)
	}
	check := func(project, name, want string) {
		t.Helper()
		task, err := w.Task(w.Project(id.Project(project)), name)
		if err != nil || task == nil {
			t.Fatalf("%s#%s: %v, %v", project, name, task, err)
		}
		got := fmt.Sprint(task.Command, task.DependsOn, task.Inputs, task.DefaultInputs, task.Outputs, task.Env, task.Timeout, task.Memory, task.Retries, task.Cache)
		if got != want {
			t.Errorf("%s#%s: %s\nwant %s", project, name, got, want)
		}
	}
	check("@x/lib", "build", "{build } [^build] [] true [dist/**] [CI] 5m0s 2147483648 0 true")
	check("@x/app", "build", "{build } [^build] [] true [out/**] [CI] 5m0s 2147483648 0 true")
	check("@x/lib", "lint", "{lint } [] [] true [] [] 5m0s 0 0 true")
	check("api", "test", "{ go test ./...} [] [!*.md /services/shared/**] true [] [CI] 5m0s 0 3 true")
	check("services/web", "test", "{ generic} [] [] true [] [CI] 5m0s 0 0 true")
	check("//", "all", "{ } [api#test] [] true [] [CI] 5m0s 0 0 false")
	if !slices.Equal(w.Globals.Env, []string{"A", "B"}) || w.Globals.EnvMode != "strict" || !w.PassesThrough {
		t.Errorf("globals: %+v", w.Globals)
	}
}

func TestScriptsAlone(t *testing.T) {
	w := open(t, "-- package.json --\n{\"workspaces\":[\"p/*\"],\"scripts\":{\"build\":\"r\"}}\n-- p/a/package.json --\n{\"name\":\"a\",\"scripts\":{\"build\":\"x\",\"test\":\"y\"}}\n")
	task, err := w.Task(w.Project("a"), "build")
	if err != nil || task.Cache || fmt.Sprint(task.DependsOn) != "[^build]" || w.RootHas("build") {
		t.Errorf("%+v, %v", task, err)
	}
	if none, err := w.Task(w.Project("a"), "nope"); none != nil || err != nil {
		t.Errorf("a task without a script: %+v, %v", none, err)
	}
}
