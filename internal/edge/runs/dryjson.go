package runs

import (
	"path/filepath"
	"slices"
	"strings"

	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/cache/key"
)

// dryReport is what --dry=json prints. What turbo prints too has turbo's name and
// meaning, so that what reads the one reads the other; the hashes of tasks are brood's.
type dryReport struct {
	Version  string       `json:"version"`
	Monorepo bool         `json:"monorepo"`
	Root     string       `json:"root"` // the workspace's folder
	Packages []id.Project `json:"packages"`
	EnvMode  string       `json:"envMode"`
	Warnings []string     `json:"warnings"`
	Tasks    []dryTask    `json:"tasks"`
}

type dryTask struct {
	ID              string            `json:"taskId"`
	Task            string            `json:"task"`
	Package         id.Project        `json:"package,omitempty"`
	Requested       bool              `json:"requested"` // it was named, and no dependency alone
	Hash            run.Key           `json:"hash"`
	Inputs          map[string]string `json:"inputs"` // from the project's folder; git's hash of each
	Cache           dryCache          `json:"cache"`
	Command         string            `json:"command"`
	Arguments       []string          `json:"cliArguments"`
	Outputs         []string          `json:"outputs"`
	ExcludedOutputs []string          `json:"excludedOutputs"`
	Directory       string            `json:"directory"`
	Dependencies    []string          `json:"dependencies"`
	Dependents      []string          `json:"dependents"`
	With            []string          `json:"with"`
	Definition      dryDefinition     `json:"resolvedTaskDefinition"`
	Framework       string            `json:"framework"`
	EnvMode         string            `json:"envMode"`
}

type dryCache struct {
	Local     bool   `json:"local"`
	Remote    bool   `json:"remote"`
	Status    string `json:"status"`           // HIT or MISS
	Source    string `json:"source,omitempty"` // LOCAL or REMOTE
	TimeSaved int64  `json:"timeSaved"`        // ms
}

type dryDefinition struct {
	Outputs     []string `json:"outputs"`
	Cache       bool     `json:"cache"`
	Inputs      []string `json:"inputs"`
	OutputLogs  string   `json:"outputLogs"`
	Persistent  bool     `json:"persistent"`
	Interactive bool     `json:"interactive"`
	Env         []string `json:"env"`
	PassThrough []string `json:"passThroughEnv"`
}

// noCommand stands, as in turbo, for the command of a task that has none.
const noCommand = "<NONEXISTENT>"

func (s *session) dryJSON(tasks []planned) dryReport {
	d := dryReport{
		Version: "1", Monorepo: !s.ws.SinglePackage, Root: s.ws.Root, Packages: orEmpty(s.graph.Projects), EnvMode: s.ws.Globals.EnvMode,
		Warnings: orEmpty(s.warnings()), Tasks: make([]dryTask, len(tasks)),
	}
	for i, t := range tasks {
		d.Tasks[i] = s.dryTask(t)
	}
	return d
}

func (s *session) dryTask(t planned) dryTask {
	d := dryTask{
		ID: s.turboID(t.ID), Task: t.Name, Package: t.Project, Requested: t.Requested, Hash: t.key, Inputs: map[string]string{}, Cache: dryCache{Status: "MISS"},
		Command: noCommand, Arguments: orEmpty(t.Args), Directory: filepath.FromSlash(t.Dir),
		Dependencies: s.turboIDs(t.Deps), Dependents: s.turboIDs(s.graph.Dependents(t.ID)), With: s.turboIDs(t.With),
		Definition: dryDefinition{
			Outputs: globsOf(t.Dir, t.Outputs), Cache: t.Cache, Inputs: globsOf(t.Dir, t.Inputs), OutputLogs: t.OutputLogs, Persistent: t.Persistent,
			Interactive: t.Interactive, Env: orEmpty(t.Env), PassThrough: orEmpty(t.PassThrough),
		},
		EnvMode: s.ws.Globals.EnvMode,
	}
	if p := s.ws.Project(t.Project); p != nil {
		d.Framework = p.Framework
	}
	if !t.Command.Empty() {
		d.Command = s.commandLine(t.Task)
	}
	if !t.DefaultInputs { // the loader's own are not for show
		d.Definition.Inputs = slices.DeleteFunc(d.Definition.Inputs, func(g string) bool {
			return g == "package.json" || g == "turbo.json" || g == "turbo.jsonc"
		})
	}
	if d.Definition.OutputLogs == "" {
		d.Definition.OutputLogs = "full"
	}
	for _, g := range d.Definition.Outputs {
		if out, not := strings.CutPrefix(g, "!"); not {
			d.ExcludedOutputs = append(d.ExcludedOutputs, out)
		} else {
			d.Outputs = append(d.Outputs, g)
		}
	}
	d.Outputs, d.ExcludedOutputs = orEmpty(d.Outputs), orEmpty(d.ExcludedOutputs)
	for _, g := range t.parts.Groups {
		if g.Name == key.FilesGroup {
			for _, file := range g.Items {
				// Behind the mode; of a link, that of what it leads to.
				d.Inputs[relativeTo(t.Dir, file.Name)] = file.Value[strings.LastIndexByte(file.Value, ':')+1:]
			}
		}
	}
	if h := t.hit; h != nil {
		d.Cache = dryCache{Local: !h.Remote(), Remote: h.Remote(), Status: "HIT", Source: "LOCAL", TimeSaved: h.Took().Milliseconds()}
		if h.Remote() {
			d.Cache.Source = "REMOTE"
		}
	}
	return d
}

// turboID is a task's ID as turbo writes it: that of a repository which is one
// package has no project.
func (s *session) turboID(t id.Task) string {
	if project, name := t.Split(); s.ws.SinglePackage && project == id.RootProject {
		return name
	}
	return string(t)
}

func (s *session) turboIDs(all []id.Task) []string {
	names := make([]string, len(all))
	for i, t := range all {
		names[i] = s.turboID(t)
	}
	return names
}

// globsOf writes globs as turbo does: all from the project's folder.
func globsOf(dir string, globs []string) []string {
	all := make([]string, len(globs))
	for i, g := range globs {
		text, not := strings.CutPrefix(g, "!")
		if rooted, ok := strings.CutPrefix(text, "/"); ok {
			text = relativeTo(dir, rooted)
		}
		if all[i] = text; not {
			all[i] = "!" + text
		}
	}
	return all
}

// relativeTo writes a path from the root as one from a folder.
func relativeTo(dir, name string) string {
	if dir == "." {
		return name
	}
	if below, ok := strings.CutPrefix(name, dir+"/"); ok {
		return below
	}
	return strings.Repeat("../", strings.Count(dir, "/")+1) + name
}
