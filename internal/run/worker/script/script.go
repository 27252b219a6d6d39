package script

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"brood/internal/base/errs"
)

// job is a script on its way to a plan.
type job struct {
	Request
	dir  string
	m    *manifest
	in   *install
	conf config
	p    *Planner
}

// inexact says why a script cannot be run exactly without its manager.
type inexact string

func (e inexact) Error() string { return string(e) }

// script is the plan of a script of package.json.
func (p *Planner) script(ctx context.Context, r Request, dir string) (*Plan, error) {
	m, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	if _, ok := m.scripts[r.Command.Script]; !ok {
		return nil, errs.New(errs.NotFound, "%s has no script %q", m.path, r.Command.Script)
	}
	makers := map[string]func(*job) (*Plan, error){"": bare, "npm": npm, "pnpm": pnpm, "yarn": yarn, "bun": bun}
	make, ok := makers[r.Manager.Name]
	if !ok {
		return nil, errs.New(errs.Unsupported, "the package manager %q is not one of npm, pnpm, yarn and bun", r.Manager.Name)
	}
	j := &job{Request: r, dir: dir, m: m, p: p}
	if r.Manager.Name == "" {
		return make(j)
	}
	why := j.prepare(ctx)
	if why == nil {
		plan, err := make(j)
		if err == nil {
			return plan, nil
		}
		why = err
	}
	return j.start(why)
}

// prepare finds the manager and reads its configuration.
func (j *job) prepare(ctx context.Context) error {
	in, err := j.p.found.look(ctx, j.Request)
	if err != nil {
		return err
	}
	j.in = in
	pinned, _, _ := strings.Cut(j.Manager.Version, "+")
	if pinned != "" && pinned != in.version && in.name != "npm" && in.name != "bun" {
		return inexact(fmt.Sprintf("the workspace has %s %s and PATH has %s", in.name, pinned, in.version))
	}
	for _, pnp := range []string{".pnp.cjs", ".pnp.js"} {
		if exists(filepath.Join(j.Root, pnp)) {
			return inexact("the workspace uses Plug'n'Play")
		}
	}
	if in.name == "bun" || in.name == "yarn" && atLeast(in.version, 2, 0) {
		return nil // they keep nothing there that scripts see
	}
	j.conf, err = j.p.config(j.Root, in, j.Vars)
	return err
}

// start is the plan to let the manager run the script itself.
func (j *job) start(why error) (*Plan, error) {
	path := which(j.Manager.Name, j.Vars["PATH"])
	if path == "" {
		return nil, errs.New(errs.FailedPrecondition, "the workspace's package manager %s is not installed: PATH has none", j.Manager.Name)
	}
	argv := []string{j.Manager.Name, "run", j.Command.Script}
	if j.Manager.Name == "npm" && len(j.Args) > 0 {
		argv = append(argv, "--")
	}
	v := clone(j.Vars)
	v["PWD"] = j.dir
	return &Plan{
		Started: why.Error(),
		Steps: []Step{{
			Event: j.Command.Script, Path: path, Argv: append(argv, j.Args...), Dir: j.dir, Env: environ(v),
		}},
	}, nil
}

// bare runs a script of a workspace that has no package manager.
func bare(j *job) (*Plan, error) {
	return j.steps(recipe{shell: []string{"/bin/sh", "sh", "-c"}, quote: quotePOSIX, pre: true}, func(string, string) map[string]string {
		v := clone(j.Vars)
		v["PATH"] = joinPath(binDirs(j.Root, j.dir), v["PATH"])
		v["INIT_CWD"] = j.dir
		return v
	})
}

// recipe is how a manager runs lines.
type recipe struct {
	// shell is the program, its name for itself and its flags.
	shell []string
	quote func(string) string
	// pre says that the scripts named pre… and post… run too; unless the
	// manager leaves them out when the script calls them itself.
	pre, unlessCalled bool
	// argsInScript says that npm_lifecycle_script shows the arguments.
	argsInScript bool
}

// steps makes the plan of a recipe; vars gives the environment of an event and
// its line.
func (j *job) steps(r recipe, vars func(event, line string) map[string]string) (*Plan, error) {
	name := j.Command.Script
	events := []string{name}
	if r.pre {
		for i, event := range []string{"pre" + name, "post" + name} {
			if j.m.scripts[event] == "" || r.unlessCalled && strings.Contains(j.m.scripts[name], event) {
				continue
			}
			if i == 0 {
				events = append([]string{event}, events...)
			} else {
				events = append(events, event)
			}
		}
	}
	plan := &Plan{}
	for _, event := range events {
		line := j.m.scripts[event]
		shown := line
		if event == name && len(j.Args) > 0 {
			line += " " + quoteAll(j.Args, r.quote)
			if r.argsInScript {
				shown = line
			}
		}
		v := vars(event, shown)
		v["PWD"] = j.dir
		v["npm_lifecycle_event"], v["npm_lifecycle_script"] = event, shown
		plan.Steps = append(plan.Steps, Step{
			Event: event, Path: r.shell[0], Argv: append(append([]string(nil), r.shell[1:]...), line),
			Dir: j.dir, Env: environ(v),
		})
	}
	return plan, nil
}

// ancestors are the node_modules/.bin folders of a folder and all above it.
func ancestors(dir string) []string {
	var dirs []string
	for {
		dirs = append(dirs, filepath.Join(dir, "node_modules", ".bin"))
		up := filepath.Dir(dir)
		if up == dir {
			return dirs
		}
		dir = up
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
