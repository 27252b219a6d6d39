package script

import (
	"path/filepath"
	"strconv"
	"strings"

	"brood/internal/base/lazy"
)

// pnpmSettings are the settings of pnpm-workspace.yaml that change how scripts
// run.
var pnpmSettings = lazy.Regexp(`(?m)^["']?(scriptShell|shellEmulator|enablePrePostScripts|useNodeVersion|verifyDepsBeforeRun|nodeOptions|executionEnv|scriptsPrependNodePath|ignoreScripts|nodeVersion|devEngines)["']?\s*:`)

// pnpm runs a script as pnpm 8 to 12 do.
func pnpm(j *job) (*Plan, error) {
	in := j.in
	if !atLeast(in.version, 8, 0) || atLeast(in.version, 13, 0) {
		return nil, inexact("pnpm " + in.version + " is not one of 8 to 12")
	}
	if err := j.conf.only("enable-pre-post-scripts"); err != nil {
		return nil, err
	}
	if b, err := readText(filepath.Join(j.Root, "pnpm-workspace.yaml")); err == nil && pnpmSettings().Match(b) {
		return nil, inexact("pnpm-workspace.yaml sets how scripts run")
	}
	if j.m.fields["pnpm"] != nil || j.m.fields["devEngines"] != nil {
		return nil, inexact("package.json may ask pnpm for another node")
	}
	r := recipe{shell: []string{"/bin/sh", "sh", "-c"}, quote: quotePnpm, pre: atLeast(in.version, 9, 0), unlessCalled: true, argsInScript: true}
	if value, ok := j.conf["enable-pre-post-scripts"]; ok && !atLeast(in.version, 11, 0) {
		r.pre = value == "true"
	}
	switch {
	case !atLeast(in.version, 9, 0):
		r.quote = strconv.Quote
	case !atLeast(in.version, 10, 0):
		r.quote = quoteEscaped
	}
	// The one script that pnpm skips, since it has nothing to say to it.
	if j.m.scripts[j.Command.Script] == "npx only-allow pnpm" {
		return nil, inexact("pnpm skips this script")
	}
	base := j.pnpmVars()
	return j.steps(r, func(event, line string) map[string]string {
		v := clone(base)
		if !atLeast(in.version, 10, 0) {
			v["npm_package_scripts_"+flatName(event)] = oneLine(line)
		}
		return v
	})
}

// pnpmVars is what pnpm adds to the environment of every line. What an outer
// package manager added is not handed on.
func (j *job) pnpmVars() map[string]string {
	in := j.in
	v := clone(j.Vars)
	for name := range v {
		if strings.HasPrefix(name, "npm_") {
			delete(v, name)
		}
	}
	node, nodeVersion, execPath := in.node.exec, in.node.version, in.exec
	switch {
	case atLeast(in.version, 12, 0): // a native program that does not ask node
		node, nodeVersion = in.node.path, "?"
	case atLeast(in.version, 11, 0): // a module is called what it was started as
		execPath = in.path
	}
	set(v, map[string]string{
		"NODE":                  node,
		"npm_node_execpath":     node,
		"npm_execpath":          execPath,
		"npm_command":           "run-script",
		"INIT_CWD":              j.dir,
		"PNPM_SCRIPT_SRC_DIR":   j.dir,
		"npm_config_node_gyp":   filepath.Join(in.lib, "dist", "node_modules", "node-gyp", "bin", "node-gyp.js"),
		"npm_config_user_agent": "pnpm/" + in.version + " npm/? node/" + nodeVersion + " " + in.node.platform + " " + in.node.arch,
	})
	if !atLeast(in.version, 11, 0) {
		j.pnpmConfig(v)
	}
	fields := j.m.fields
	if atLeast(in.version, 10, 0) {
		v["pnpm_config_verify_deps_before_run"] = "false"
		v["npm_package_json"] = j.m.path
		fields = j.m.pick("name", "version", "config", "engines", "bin")
	}
	flatten("", fields, func(name string, value any) {
		if strings.HasPrefix(name, "_") || name == "readme" {
			return
		}
		v["npm_package_"+flatName(name)] = oneLine(text(value))
	})
	bins := []string{filepath.Join(j.dir, "node_modules", ".bin"), filepath.Join(in.lib, "dist", "node-gyp-bin"), filepath.Join(j.Root, "node_modules", ".bin")}
	v["PATH"] = joinPath(bins, v["PATH"])
	return v
}

// pnpmConfig adds the settings that pnpm up to version 10 tells scripts.
func (j *job) pnpmConfig(v map[string]string) {
	v["npm_config_registry"] = "https://registry.npmjs.org/"
	v["npm_config_frozen_lockfile"] = ""
	if atLeast(j.in.version, 10, 0) {
		v["npm_config__jsr_registry"] = "https://npm.jsr.io/"
		v["npm_config_verify_deps_before_run"] = "false"
		v["npm_config_globalconfig"] = filepath.Join(pnpmConfigDir(j.Vars), "rc")
		v["npm_config_npm_globalconfig"] = filepath.Join(prefix(j.in.node), "etc", "npmrc")
	}
	for name, value := range j.conf {
		if strings.HasPrefix(name, "_") || strings.Contains(name, ":_") {
			continue
		}
		if value == "false" || value == "null" {
			value = ""
		}
		v["npm_config_"+flatName(name)] = value
	}
}

func pnpmConfigDir(v map[string]string) string {
	if dir := v["XDG_CONFIG_HOME"]; dir != "" {
		return filepath.Join(dir, "pnpm")
	}
	return filepath.Join(v["HOME"], ".config", "pnpm")
}

// quotePnpm writes arguments as pnpm 10 and later do: scripts are shown the line.
func quotePnpm(s string) string {
	if s != "" && strings.IndexFunc(s, special) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'"
}

// quoteEscaped writes arguments as pnpm 9 does, which is not right for every
// one: a backslash beside a blank is doubled, a leading tilde is left to the
// shell.
func quoteEscaped(s string) string {
	switch {
	case s == "":
		return "''"
	case strings.ContainsAny(s, "\" \t\n\r\v\f") && !strings.Contains(s, "'"):
		return "'" + escape(s, `\`) + "'"
	case strings.ContainsAny(s, "\"' \t\n\r\v\f"):
		return `"` + escape(s, "\"\\$`!") + `"`
	}
	return escape(s, "#!\"$&'()*,:;<=>?@[\\]^`{|}")
}

func escape(s, which string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(which, s[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
