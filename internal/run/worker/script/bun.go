package script

import (
	"path/filepath"

	"brood/internal/base/lazy"
)

// managers are the words that bun reads in a script as calls of a package
// manager, and replaces.
var managers = lazy.Regexp(`\b(npm|npx|pnpm|pnpx|yarn|bun|bunx)\b`)

// bun runs a script as bun 1.2 and later do: by bash where there is one.
func bun(j *job) (*Plan, error) {
	in := j.in
	if !atLeast(in.version, 1, 2) || atLeast(in.version, 2, 0) {
		return nil, inexact("bun " + in.version + " is not one of 1.2 and later")
	}
	if in.node.path == "" {
		return nil, inexact("bun stands in for a node that PATH has not")
	}
	for _, dir := range []string{j.dir, j.Root, j.Vars["HOME"], j.Vars["XDG_CONFIG_HOME"]} {
		for _, name := range []string{"bunfig.toml", ".bunfig.toml"} {
			if dir != "" && exists(filepath.Join(dir, name)) {
				return nil, inexact("a bunfig.toml may set how scripts run")
			}
		}
	}
	for _, event := range []string{"pre" + j.Command.Script, j.Command.Script, "post" + j.Command.Script} {
		if managers().MatchString(j.m.scripts[event]) {
			return nil, inexact("bun rewrites calls of package managers in scripts")
		}
	}
	shell := bunShell(j.Vars["PATH"])
	if shell == "" {
		return nil, inexact("PATH has no shell")
	}
	base := j.bunVars()
	return j.steps(recipe{shell: []string{shell, shell, "-c"}, quote: quotePOSIX, pre: true}, func(string, string) map[string]string {
		return clone(base)
	})
}

func bunShell(path string) string {
	for _, name := range []string{"bash", "sh", "zsh"} {
		if shell := which(name, path); shell != "" {
			return shell
		}
	}
	return ""
}

// bunVars is what bun adds to the environment of every line. It stands for a
// version of node of its own.
func (j *job) bunVars() map[string]string {
	in := j.in
	v := clone(j.Vars)
	set(v, map[string]string{
		"npm_command":             "run-script",
		"npm_config_local_prefix": j.dir,
		"npm_package_json":        j.m.path,
	})
	unset(v, map[string]string{
		"NODE":                  in.node.path,
		"npm_node_execpath":     in.node.path,
		"npm_execpath":          in.exec,
		"npm_config_user_agent": "bun/" + in.version + " npm/? node/" + in.nodeAPI + " " + in.node.platform + " " + in.node.arch,
	})
	for name, value := range map[string]string{"name": j.m.name, "version": j.m.version} {
		if value != "" {
			v["npm_package_"+name] = value
		}
	}
	bins := append([]string{filepath.Join(j.dir, "node_modules", ".bin")}, ancestors(j.dir)...)
	v["PATH"] = joinPath(bins, v["PATH"])
	return v
}
