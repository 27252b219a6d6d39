package script

import (
	"path/filepath"
	"strings"
)

// npm runs a script as npm 10 and later do. Older ones are started: they quote
// arguments, name variables and end in ways of their own.
func npm(j *job) (*Plan, error) {
	in := j.in
	if !atLeast(in.version, 10, 0) || atLeast(in.version, 13, 0) {
		return nil, inexact("npm " + in.version + " is not one of 10 to 12")
	}
	if err := j.conf.only(); err != nil {
		return nil, err
	}
	base := j.npmVars()
	return j.steps(recipe{shell: []string{"/bin/sh", "sh", "-c"}, quote: quoteNPM, pre: true}, func(string, string) map[string]string {
		return clone(base)
	})
}

// npmVars is what npm adds to the environment of every line.
func (j *job) npmVars() map[string]string {
	in, home := j.in, j.Vars["HOME"]
	v := clone(j.Vars)
	set(v, map[string]string{
		"NODE":                     in.node.exec,
		"npm_node_execpath":        in.node.exec,
		"npm_execpath":             in.exec,
		"npm_command":              "run",
		"INIT_CWD":                 j.dir,
		"npm_config_global_prefix": prefix(in.node),
		"npm_config_local_prefix":  j.Root,
		"npm_config_node_gyp":      filepath.Join(in.lib, "node_modules", "node-gyp", "bin", "node-gyp.js"),
		"npm_config_npm_version":   in.version,
		"npm_package_json":         j.m.path,
	})
	if !atLeast(in.version, 11, 3) {
		v["npm_command"] = "run-script"
	}
	unset(v, map[string]string{
		"npm_config_prefix":       prefix(in.node),
		"npm_config_cache":        filepath.Join(home, ".npm"),
		"npm_config_globalconfig": filepath.Join(prefix(in.node), "etc", "npmrc"),
		"npm_config_userconfig":   filepath.Join(home, ".npmrc"),
		"npm_config_init_module":  filepath.Join(home, ".npm-init.js"),
		"npm_config_noproxy":      "",
		"npm_config_user_agent":   j.npmAgent(),
		"COLOR":                   "0",
		"EDITOR":                  "vi",
	})
	if atLeast(in.version, 12, 0) {
		unset(v, map[string]string{"npm_config_global_ignore_file": filepath.Join(prefix(in.node), "etc", "npmignore")})
	}
	for name, value := range j.conf {
		if name == "" || strings.ContainsAny(name[:1], "/@_") || npmDefaults[name] == value {
			continue
		}
		if value == "false" || value == "null" {
			value = ""
		}
		key := "npm_config_" + strings.ToLower(strings.ReplaceAll(name, "-", "_"))
		if _, inherited := j.Vars[key]; !inherited {
			v[key] = value
		}
	}
	fields := j.m.pick("name", "version", "config", "engines")
	if bins, ok := j.m.namedBins(); ok {
		fields["bin"] = bins
	}
	flatten("", fields, func(name string, value any) {
		if value == nil || value == false {
			value = ""
		}
		v["npm_package_"+name] = text(value)
	})
	v["PATH"] = joinPath(append(ancestors(j.dir), filepath.Join(in.lib, "node_modules", "@npmcli", "run-script", "lib", "node-gyp-bin")), dedupe(v["PATH"]))
	return v
}

// npmDefaults are settings that people write down though they are the default;
// npm tells scripts of others only.
var npmDefaults = map[string]string{
	"registry": "https://registry.npmjs.org/", "fund": "true", "audit": "true", "package-lock": "true", "save": "true",
	"strict-ssl": "true", "save-exact": "false", "engine-strict": "false", "legacy-peer-deps": "false", "loglevel": "notice",
	"save-prefix": "^", "tag": "latest", "progress": "true", "update-notifier": "true", "strict-peer-deps": "false",
	"prefer-offline": "false", "ignore-scripts": "false", "bin-links": "true", "access": "null", "prefer-dedupe": "false",
}

// npmAgent is npm's name for itself. It says whether it was told to run in a
// workspace, which it finds out by looking for the root.
func (j *job) npmAgent() string {
	n := j.in.node
	agent := "npm/" + j.in.version + " node/" + n.version + " " + n.platform + " " + n.arch + " workspaces/"
	if j.dir != j.Root {
		agent += "true"
	} else {
		agent += "false"
	}
	if name := ciName(j.Vars); name != "" {
		agent += " ci/" + name
	}
	return agent
}

// ciName is what npm calls the CI that it runs in; empty is none.
func ciName(v map[string]string) string {
	for _, ci := range []struct{ name, variable string }{
		{"github-actions", "GITHUB_ACTIONS"}, {"vercel", "NOW_BUILDER"}, {"vercel", "VERCEL"},
	} {
		if v[ci.variable] != "" {
			return ci.name
		}
	}
	if ci := v["CI"]; ci != "" && ci != "false" {
		return "custom"
	}
	return ""
}

// dedupe drops what a PATH names a second time.
func dedupe(path string) string {
	seen := map[string]bool{}
	var kept []string
	for dir := range strings.SplitSeq(path, ":") {
		if !seen[dir] {
			seen[dir] = true
			kept = append(kept, dir)
		}
	}
	return strings.Join(kept, ":")
}

// quoteNPM leaves alone what npm does not take for special.
func quoteNPM(s string) string {
	if s != "" && !strings.ContainsAny(s, "\t\n\r \"#$&'()*;<>?\\`|~") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// set puts values over what is there, unset only where nothing is.
func set(v, values map[string]string) {
	for name, value := range values {
		v[name] = value
	}
}

func unset(v, values map[string]string) {
	for name, value := range values {
		if _, ok := v[name]; !ok {
			v[name] = value
		}
	}
}
