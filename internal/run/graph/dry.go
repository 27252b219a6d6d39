package graph

import (
	"slices"
	"strings"

	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/workspace"
)

// Dry is the JSON form of a dry run. Its fields carry turbo's names where turbo
// has them, so that what reads turbo's dry run reads this one.
type Dry struct {
	Version            string    `json:"version"`
	Monorepo           bool      `json:"monorepo"`
	Packages           []string  `json:"packages"`
	EnvMode            string    `json:"envMode"`
	FrameworkInference bool      `json:"frameworkInference"`
	Tasks              []DryTask `json:"tasks"`
}

// DryTask is a task of a dry run, in the order of the IDs. Hash and Cache are
// for the caller to fill: keys are no business of a graph.
type DryTask struct {
	ID              id.Task       `json:"taskId"`
	Task            string        `json:"task"`
	Package         id.Project    `json:"package"`
	Hash            string        `json:"hash"`
	Cache           *DryCache     `json:"cache,omitempty"`
	Command         string        `json:"command"`
	CLIArguments    []string      `json:"cliArguments"`
	Outputs         []string      `json:"outputs"`
	ExcludedOutputs []string      `json:"excludedOutputs"`
	Directory       string        `json:"directory"`
	Dependencies    []id.Task     `json:"dependencies"`
	Dependents      []id.Task     `json:"dependents"`
	With            []id.Task     `json:"with"`
	Framework       string        `json:"framework"`
	EnvMode         string        `json:"envMode"`
	Requested       bool          `json:"requested"`
	Excluded        bool          `json:"excluded,omitempty"`
	Definition      DryDefinition `json:"resolvedTaskDefinition"`
}

// DryCache says whether the cache has the task's result.
type DryCache struct {
	Local  bool   `json:"local"`
	Remote bool   `json:"remote"`
	Status string `json:"status"` // HIT or MISS
	// TimeSaved is what the producing run took, in milliseconds.
	TimeSaved int64 `json:"timeSaved"`
}

// DryDefinition is what the workspace's files say of a task.
type DryDefinition struct {
	Outputs        []string `json:"outputs"`
	Inputs         []string `json:"inputs"`
	DefaultInputs  bool     `json:"defaultInputs"`
	Cache          bool     `json:"cache"`
	DependsOn      []string `json:"dependsOn"`
	OutputLogs     string   `json:"outputLogs"`
	Persistent     bool     `json:"persistent"`
	Interactive    bool     `json:"interactive"`
	Env            []string `json:"env"`
	PassThroughEnv []string `json:"passThroughEnv"`
}

// nothing is what turbo writes for a task without a command.
const nothing = "<NONEXISTENT>"

// Dry returns the graph as a dry run tells it.
func (g *Graph) Dry() *Dry {
	w := g.workspace
	d := &Dry{Version: "1", Monorepo: !w.SinglePackage, EnvMode: w.Globals.EnvMode, FrameworkInference: w.Inference, Packages: []string{}}
	for _, p := range g.Projects {
		d.Packages = append(d.Packages, string(p))
	}
	tasks := slices.Clone(g.Tasks)
	slices.SortFunc(tasks, func(a, b *run.Task) int { return strings.Compare(string(a.ID), string(b.ID)) })
	d.Tasks = make([]DryTask, len(tasks))
	for i, t := range tasks {
		d.Tasks[i] = g.dry(t)
	}
	return d
}

func (g *Graph) dry(t *run.Task) DryTask {
	p := g.workspace.Project(t.Project)
	dry := DryTask{
		ID: t.ID, Task: t.Name, Package: t.Project, Command: CommandOf(p, t), CLIArguments: list(t.Args), Directory: t.Dir,
		Dependencies: list(t.Deps), Dependents: list(g.dependents[t.ID]), With: list(t.With), Framework: p.Framework,
		EnvMode: g.workspace.Globals.EnvMode, Requested: t.Requested, Excluded: t.Excluded,
		Outputs: []string{}, ExcludedOutputs: []string{},
	}
	for _, o := range t.Outputs {
		if not, ok := strings.CutPrefix(o, "!"); ok {
			dry.ExcludedOutputs = append(dry.ExcludedOutputs, not)
		} else {
			dry.Outputs = append(dry.Outputs, o)
		}
	}
	logs := t.OutputLogs
	if logs == "" {
		logs = "full"
	}
	dry.Definition = DryDefinition{
		Outputs: list(t.Outputs), Inputs: list(t.Inputs), DefaultInputs: t.DefaultInputs, Cache: t.Cache, DependsOn: []string{},
		OutputLogs: logs, Persistent: t.Persistent, Interactive: t.Interactive, Env: list(t.Env), PassThroughEnv: list(t.PassThrough),
	}
	for _, ref := range g.refs[t.ID] {
		dry.Definition.DependsOn = append(dry.Definition.DependsOn, ref.String())
	}
	return dry
}

// CommandOf is the command line of a task as its files write it.
func CommandOf(p *workspace.Project, t *run.Task) string {
	switch {
	case t.Command.Line != "":
		return t.Command.Line
	case t.Command.Script != "":
		return p.Scripts[t.Command.Script]
	}
	return nothing
}

// list is never null in JSON.
func list[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}
