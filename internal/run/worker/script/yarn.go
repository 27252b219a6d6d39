package script

import (
	"encoding/json"
	"path/filepath"
	"strings"
)

// yarn runs a script as yarn 1.22 does, or as berry says.
func yarn(j *job) (*Plan, error) {
	in := j.in
	if atLeast(in.version, 2, 0) {
		return berry(j)
	}
	if !atLeast(in.version, 1, 22) {
		return nil, inexact("yarn " + in.version + " is older than 1.22")
	}
	if err := j.conf.only(); err != nil {
		return nil, err
	}
	for _, dir := range []string{j.Root, j.dir, j.Vars["HOME"]} {
		if b, err := readText(filepath.Join(dir, ".yarnrc")); err == nil && settings(b) {
			return nil, inexact("a .yarnrc file sets how yarn runs")
		}
	}
	for name := range j.Vars {
		if strings.HasPrefix(strings.ToLower(name), "yarn_") {
			return nil, inexact("the variable " + name + " sets how yarn runs")
		}
	}
	base, err := j.yarnVars()
	if err != nil {
		return nil, err
	}
	return j.steps(recipe{shell: []string{"/bin/sh", "/bin/sh", "-c"}, quote: quotePOSIX, pre: true}, func(event, _ string) map[string]string {
		v := clone(base)
		argv := struct {
			Remain   []string `json:"remain"`
			Cooked   []string `json:"cooked"`
			Original []string `json:"original"`
		}{[]string{}, []string{"run", event}, append([]string{"run", j.Command.Script}, j.Args...)}
		v["npm_config_argv"] = compact(argv)
		return v
	})
}

// settings says that a .yarnrc has one that counts: yarn itself writes down
// when it last looked for a newer version.
func settings(rc []byte) bool {
	for line := range strings.Lines(string(rc)) {
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' && !strings.HasPrefix(line, "lastUpdateCheck") {
			return true
		}
	}
	return false
}

// compact writes JSON as JavaScript does.
func compact(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return ""
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// yarnVars is what yarn 1 adds to the environment of every line.
func (j *job) yarnVars() (map[string]string, error) {
	in := j.in
	v := clone(j.Vars)
	unset(v, map[string]string{"NODE": in.node.exec, "INIT_CWD": j.dir, "npm_execpath": in.exec})
	set(v, map[string]string{
		"npm_node_execpath":     v["NODE"],
		"YARN_WRAP_OUTPUT":      "false",
		"npm_config_user_agent": "yarn/" + in.version + " npm/? node/" + in.node.version + " " + in.node.platform + " " + in.node.arch,
		"npm_config_registry":   "https://registry.yarnpkg.com", "npm_config_bin_links": "true", "npm_config_ignore_optional": "",
		"npm_config_ignore_scripts": "", "npm_config_init_license": "MIT", "npm_config_init_version": "1.0.0",
		"npm_config_save_prefix": "^", "npm_config_strict_ssl": "true", "npm_config_version_commit_hooks": "true",
		"npm_config_version_git_message": "v%s", "npm_config_version_git_sign": "", "npm_config_version_git_tag": "true",
		"npm_config_version_tag_prefix": "v",
	})
	for name, value := range j.conf {
		if strings.Contains(name, ":_") {
			continue
		}
		if value == "false" || value == "null" {
			value = ""
		}
		v["npm_config_"+flatName(strings.TrimLeft(name, "_"))] = value
	}
	fields := map[string]any{}
	for name, value := range j.m.fields {
		fields[name] = value
	}
	if bins, ok := j.m.namedBins(); ok {
		fields["bin"] = bins
	}
	flatten("", fields, func(name string, value any) {
		top, _, _ := strings.Cut(name, "_")
		switch {
		case value == nil, name[0] == '_', top == "readme", top == "notice", top == "licenseText", top == "activationEvents", top == "contributes":
			return
		}
		v["npm_package_"+flatName(name)] = oneLine(text(value))
	})
	bin := filepath.Dir(in.node.exec)
	v["PATH"] = joinPath([]string{
		filepath.Join(j.dir, "node_modules", ".bin"),
		filepath.Join(j.Root, "node_modules", ".bin"),
		filepath.Join(filepath.Dir(bin), "libexec", "lib", "node_modules", "npm", "bin", "node-gyp-bin"),
		filepath.Join(filepath.Dir(bin), "lib", "node_modules", "npm", "bin", "node-gyp-bin"),
		filepath.Join(bin, "node_modules", "npm", "bin", "node-gyp-bin"),
	}, v["PATH"])
	return v, nil
}
