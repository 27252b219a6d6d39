package script

import (
	"context"

	"brood/internal/base/errs"
)

type installs struct{}

func (p *Planner) script(_ context.Context, r Request, dir string) (*Plan, error) {
	m, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	name := r.Command.Script
	if _, ok := m.scripts[name]; !ok {
		return nil, errs.New(errs.NotFound, "%s has no script %q", m.path, name)
	}
	plan := &Plan{}
	for _, event := range []string{"pre" + name, name, "post" + name} {
		text := m.scripts[event]
		if text == "" {
			continue
		}
		v := clone(r.Vars)
		v["PATH"] = joinPath(binDirs(r.Root, dir), v["PATH"])
		v["PWD"], v["INIT_CWD"] = dir, dir
		v["npm_lifecycle_event"], v["npm_lifecycle_script"] = event, text
		v["npm_package_name"], v["npm_package_version"], v["npm_package_json"] = m.name, m.version, m.path
		if event == name && len(r.Args) > 0 {
			text += " " + quoteAll(r.Args, quotePOSIX)
		}
		plan.Steps = append(plan.Steps, shell(event, text, dir, v))
	}
	return plan, nil
}
