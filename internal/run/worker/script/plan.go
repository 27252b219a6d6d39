package script

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

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

	mu      sync.Mutex // guards the maps
	configs map[string]*once[config]
	folders map[string]*once[string] // of yarn's programs
}

// NewPlanner returns a planner that knows nothing yet.
func NewPlanner() *Planner { return &Planner{} }

// Close removes the folders that plans made; their steps must be over.
func (p *Planner) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []error
	for _, f := range p.folders {
		if f.value != "" {
			all = append(all, os.RemoveAll(f.value))
		}
	}
	p.folders = nil
	return errors.Join(all...)
}

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
