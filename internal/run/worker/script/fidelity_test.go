package script_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brood/internal/run"
	"brood/internal/run/worker/script"
)

// dump is what a script does in these tests: it says what it sees.
const dump = `const o={event:process.env.npm_lifecycle_event,args:process.argv.slice(2),cwd:process.cwd(),env:process.env};
require('fs').appendFileSync(process.env.DUMP,JSON.stringify(o)+'\n');
`

// seen is one script's account.
type seen struct {
	Event string
	Args  []string
	Cwd   string
	Env   map[string]string
}

// manager is a package manager under test.
type manager struct {
	name, version string
	title         string // of the test; empty is the name
	file          string
	// meant are the variables that differ, with the reason.
	meant map[string]string
	// started says that the manager is to be started, and a part of why.
	started string
	setup   func(t *testing.T, w *workspace)
}

// testdeps is a program of `make testdeps`.
func testdeps(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs("../../../../.cache/node/bin/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("SKIPPED: %s is not there: run make testdeps", path)
	}
	return path
}

// workspace has a root and one project in packages/a.
type workspace struct {
	root, home, bin string
	m               manager
}

func (w *workspace) write(t testing.TB, name, content string) {
	t.Helper()
	path := filepath.Join(w.root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func newWorkspace(t *testing.T, m manager) *workspace {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &workspace{root: filepath.Join(base, "ws"), home: filepath.Join(base, "home"), bin: filepath.Join(base, "bin"), m: m}
	for _, dir := range []string{w.home, w.bin} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, file := range map[string]string{"node": testdeps(t, "node"), m.name: m.file} {
		if err := os.Symlink(file, filepath.Join(w.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	w.write(t, "dump.js", dump)
	w.write(t, "package.json", `{"name":"root","private":true,"version":"0.1.0","workspaces":["packages/*"],"scripts":{"build":"node ./dump.js main"}}`)
	w.write(t, "packages/a/package.json", `{
  "name": "@acme/a", "version": "1.2.3", "license": "MIT", "private": false, "description": "two\nlines",
  "engines": {"node": ">=18"}, "config": {"port": 8080, "on": true, "list": ["x", "y"], "deep": {"k": "v"}}, "bin": {"atool": "./t.js"},
  "keywords": ["one", "two"], "dependencies": {},
  "scripts": {"prebuild": "node ../../dump.js pre", "build": "node ../../dump.js main", "postbuild": "node ../../dump.js post", "other": "node ../../dump.js other && exit 3", "preother": "node ../../dump.js preother"}
}`)
	w.write(t, "packages/b/package.json", `{"name":"btool","version":"0.0.1","bin":"./cli.js","scripts":{"build":"node ../../dump.js main","prebuild":"exit 4"}}`)
	w.write(t, "pnpm-workspace.yaml", "packages:\n  - packages/*\n")
	if m.setup != nil {
		m.setup(t, w)
	}
	return w
}

func (w *workspace) vars(file string) map[string]string {
	return map[string]string{
		"PATH": w.bin + ":/usr/bin:/bin", "HOME": w.home, "TMPDIR": w.home, "DUMP": file, "LANG": "C.UTF-8",
		"NO_UPDATE_NOTIFIER": "1", "CI": "",
	}
}

// accounts reads what scripts said.
func accounts(t *testing.T, file string) []seen {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var all []seen
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s seen
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		delete(s.Env, "DUMP")
		all = append(all, s)
	}
	return all
}

// run executes one process and returns its exit code.
func runProcess(t *testing.T, path string, argv []string, dir string, env []string) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Args, cmd.Dir, cmd.Env = argv, dir, env
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("%v: %v", argv, err)
	}
	if err != nil {
		t.Logf("%v: %v\n%s", argv, err, out)
	}
	return cmd.ProcessState.ExitCode()
}

// real has the manager run the script.
func (w *workspace) real(t *testing.T, dir, name string, args []string) ([]seen, int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "real")
	var env []string
	for n, v := range w.vars(file) {
		env = append(env, n+"="+v)
	}
	argv := []string{w.m.name, "run", name}
	if w.m.name == "npm" && len(args) > 0 {
		argv = append(argv, "--")
	}
	code := runProcess(t, filepath.Join(w.bin, w.m.name), append(argv, args...), filepath.Join(w.root, dir), env)
	return accounts(t, file), code
}

// ours runs the steps of the plan.
func (w *workspace) ours(t *testing.T, p *script.Planner, dir, name string, args []string) ([]seen, int, *script.Plan) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ours")
	plan, err := p.Plan(t.Context(), script.Request{
		Root: w.root, Dir: dir, Command: run.Command{Script: name}, Args: args,
		Manager: run.Manager{Name: w.m.name, Version: w.m.version}, Vars: w.vars(file),
	})
	if err != nil {
		t.Fatal(err)
	}
	code := 0
	for _, s := range plan.Steps {
		if code = runProcess(t, s.Path, s.Argv, s.Dir, s.Env); code != 0 {
			break
		}
	}
	return accounts(t, file), code, plan
}

func compare(t *testing.T, w *workspace, p *script.Planner, dir, name string, args ...string) {
	t.Helper()
	theirs, code := w.real(t, dir, name, args)
	ours, got, plan := w.ours(t, p, dir, name, args)
	if (w.m.started != "") != (plan.Started != "") || !strings.Contains(plan.Started, w.m.started) {
		t.Fatalf("started %q, want %q", plan.Started, w.m.started)
	}
	if code != got {
		t.Errorf("%s %s: exit code %d, with the manager %d", dir, name, got, code)
	}
	if len(theirs) != len(ours) {
		t.Fatalf("%s %s: %d scripts ran, with the manager %d", dir, name, len(ours), len(theirs))
	}
	for i, real := range theirs {
		mine := ours[i]
		if real.Event != mine.Event || !slices.Equal(real.Args, mine.Args) || real.Cwd != mine.Cwd {
			t.Errorf("%s in %s with %q, with the manager %s in %s with %q", mine.Event, mine.Cwd, mine.Args, real.Event, real.Cwd, real.Args)
		}
		for _, d := range differences(real.Env, mine.Env, w.m.meant) {
			t.Errorf("%s %s: %s", dir, mine.Event, d)
		}
	}
}

// differences lists the variables that are not the same, but for those meant.
func differences(real, ours, meant map[string]string) []string {
	names := map[string]bool{}
	for n := range real {
		names[n] = true
	}
	for n := range ours {
		names[n] = true
	}
	var list []string
	for _, n := range slices.Sorted(maps.Keys(names)) {
		a, inA := real[n]
		b, inB := ours[n]
		if _, ok := meant[n]; ok || inA == inB && a == b {
			continue
		}
		list = append(list, fmt.Sprintf("%s: %q (%v), with the manager %q (%v)", n, b, inB, a, inA))
	}
	return list
}

var oddArgs = []string{"x y", `q"$z`, "it's", "", "*", "a;b", "--flag=1"}

func TestScriptsRunAsTheManagersRunThem(t *testing.T) {
	for _, m := range managers(t) {
		t.Run(cmp.Or(m.title, m.name), func(t *testing.T) {
			w := newWorkspace(t, m)
			p := script.NewPlanner()
			t.Cleanup(func() {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			})
			compare(t, w, p, "packages/a", "build", oddArgs...)
			compare(t, w, p, "packages/a", "other")
			compare(t, w, p, "packages/b", "build")
			compare(t, w, p, ".", "build", "x")
		})
	}
}

// managers are those of `make testdeps`, and those that BROOD_TEST_MANAGERS
// names as name=file, separated by colons.
func managers(t *testing.T) []manager {
	wrappers := map[string]string{
		"PATH": "yarn leads it with a folder of wrappers, made for each script",
	}
	berry := map[string]string{
		"PATH":                 wrappers["PATH"],
		"BERRY_BIN_FOLDER":     "that folder",
		"npm_execpath":         "in that folder",
		"npm_node_execpath":    "in that folder",
		"npm_lifecycle_script": "yarn does not set it; the workspace's other managers all do",
	}
	list := []manager{
		{name: "npm", file: testdeps(t, "npm")},
		{name: "pnpm", file: testdeps(t, "pnpm")},
		{name: "pnpm", title: "pnpm-native", file: testdeps(t, "pnpm-native"), started: "not the program itself"},
		{name: "yarn", file: testdeps(t, "yarn"), meant: wrappers},
		{name: "yarn", title: "berry", file: testdeps(t, "yarn-berry"), meant: berry, setup: func(t *testing.T, w *workspace) {
			w.write(t, ".yarnrc.yml", "nodeLinker: node-modules\nenableTelemetry: false\nenableGlobalCache: false\n")
			w.write(t, "yarn.lock", "")
			install(t, w)
		}},
		{name: "yarn", title: "pnp", file: testdeps(t, "yarn-berry"), started: "Plug'n'Play", meant: berry, setup: func(t *testing.T, w *workspace) {
			w.write(t, ".yarnrc.yml", "enableTelemetry: false\nenableGlobalCache: false\n")
			w.write(t, "yarn.lock", "")
			install(t, w)
		}},
		{name: "bun", file: testdeps(t, "bun")},
	}
	for _, extra := range filepath.SplitList(os.Getenv("BROOD_TEST_MANAGERS")) {
		name, file, _ := strings.Cut(extra, "=")
		list = append(list, manager{name: name, title: extra, file: file})
	}
	return list
}

// install has the manager install a workspace without dependencies.
func install(t *testing.T, w *workspace) {
	t.Helper()
	var env []string
	for n, v := range w.vars(os.DevNull) {
		env = append(env, n+"="+v)
	}
	if code := runProcess(t, filepath.Join(w.bin, w.m.name), []string{w.m.name, "install"}, w.root, env); code != 0 {
		t.Fatalf("install: exit code %d", code)
	}
}
