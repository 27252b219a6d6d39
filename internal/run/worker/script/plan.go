package script

import (
	"context"
	"path/filepath"

	"brood/internal/base/errs"
	"brood/internal/run"
)

// Request asks for the plan of one command.
type Request struct {
	// Root is the workspace's root, absolute; Dir the project's folder under it,
	// with slashes.
	Root, Dir string
	Command   run.Command
	// Args are what the user gave after "--".
	Args    []string
	Manager run.Manager
	// Vars is what the task sees of the run's environment.
	Vars map[string]string
}

// Step is one process.
type Step struct {
	// Event is the name of the script, as in npm_lifecycle_event.
	Event string
	// Path is the program, Argv its arguments with its name in front.
	Path string
	Argv []string
	Dir  string
	Env  []string
}

// Plan is what runs, one step after the other until one fails.
type Plan struct {
	Steps []Step
	// Started says why the package manager is started for it; empty when it is
	// not.
	Started string
}

// Planner makes plans.
type Planner struct {
	found installs
}

// NewPlanner returns a planner that knows nothing yet.
func NewPlanner() *Planner { return &Planner{} }

// Plan says how a command runs.
func (p *Planner) Plan(ctx context.Context, r Request) (*Plan, error) {
	if !filepath.IsAbs(r.Root) {
		return nil, errs.New(errs.InvalidArgument, "the workspace's root %q is not absolute", r.Root)
	}
	dir := filepath.Join(r.Root, filepath.FromSlash(r.Dir))
	if r.Command.Script == "" {
		return line(r, dir), nil
	}
	return p.script(ctx, r, dir)
}

// line is the plan of a command line, which belongs to no package manager.
func line(r Request, dir string) *Plan {
	v := clone(r.Vars)
	v["INIT_CWD"] = dir
	v["PWD"] = dir
	v["PATH"] = joinPath(binDirs(r.Root, dir), v["PATH"])
	cmd := r.Command.Line
	if len(r.Args) > 0 {
		cmd += " " + quoteAll(r.Args, quotePOSIX)
	}
	return &Plan{Steps: []Step{shell(r.Command.Line, cmd, dir, v)}}
}
