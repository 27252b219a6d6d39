package workspace

import (
	"maps"
	"slices"

	"brood/internal/run"
)

// scripts defines tasks where nothing but package.json does: every script is
// one. Nothing is known of what they read and write, so nothing is cached.
type scripts struct{ w *Workspace }

func (s scripts) task(p *Project, name string) (*Task, error) {
	if p.Scripts[name] == "" {
		return nil, nil
	}
	t := &Task{Command: run.Command{Script: name}}
	t.DefaultInputs = true
	if name == "build" {
		t.DependsOn = []Ref{{Up: true, Name: "build", Where: "package.json"}}
	}
	return t, nil
}

func (s scripts) names(p *Project) []string { return slices.Collect(maps.Keys(p.Scripts)) }

func (s scripts) rooted(name string) bool { return s.w.SinglePackage }
