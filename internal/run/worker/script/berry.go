package script

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"brood/internal/base/errs"
	"brood/internal/base/lazy"
)

var (
	yarnPath   = lazy.Regexp(`(?m)^yarnPath:\s*["']?([^\s"'#]+)`)
	release    = lazy.Regexp(`^yarn-(\d+\.\d+\.\d+[0-9A-Za-z.-]*)\.c?js$`)
	nodeLinker = lazy.Regexp(`(?m)^nodeLinker:\s*["']?node-modules["']?\s*(#.*)?$`)
	envFiles   = lazy.Regexp(`(?m)^injectEnvironmentFiles\s*:`)
)

// pinnedYarn is the yarn that a workspace carries with it, whatever PATH has.
func pinnedYarn(root string) (*install, error) {
	b, err := readText(filepath.Join(root, ".yarnrc.yml"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errs.New(errs.FailedPrecondition, "the workspace's yarn: %w", err)
	}
	m := yarnPath().FindSubmatch(b)
	if m == nil {
		return nil, nil
	}
	file := filepath.FromSlash(string(m[1]))
	if !filepath.IsAbs(file) {
		file = filepath.Join(root, file)
	}
	v := release().FindStringSubmatch(filepath.Base(file))
	if v == nil || !exists(file) {
		return nil, inexact("the name of the workspace's yarn does not tell its version")
	}
	return &install{name: "yarn", version: v[1], exec: file, lib: filepath.Dir(file)}, nil
}

// berry runs a script as yarn 2 and later do, where its shell and the system's
// cannot tell the difference.
func berry(j *job) (*Plan, error) {
	rc, err := readText(filepath.Join(j.Root, ".yarnrc.yml"))
	if err != nil || !nodeLinker().Match(rc) {
		return nil, inexact("the workspace does not say nodeLinker: node-modules")
	}
	if envFiles().Match(rc) || exists(filepath.Join(j.Root, ".env.yarn")) || exists(filepath.Join(j.dir, ".env.yarn")) {
		return nil, inexact("yarn reads variables from files")
	}
	if !exists(filepath.Join(j.Root, "node_modules", ".yarn-state.yml")) {
		return nil, inexact("the workspace is not installed")
	}
	bin, err := j.p.wrappers(j.in)
	if err != nil {
		return nil, err
	}
	v := j.berryVars(bin)
	if why := plain(j.m.scripts[j.Command.Script], v["PATH"]); why != "" {
		return nil, inexact("yarn has a shell of its own, and " + why)
	}
	return j.steps(recipe{shell: []string{"/bin/sh", "sh", "-c"}, quote: quotePOSIX}, func(string, string) map[string]string {
		return clone(v)
	})
}

func (j *job) berryVars(bin string) map[string]string {
	in := j.in
	v := clone(j.Vars)
	set(v, map[string]string{
		"BERRY_BIN_FOLDER":  bin,
		"PROJECT_CWD":       j.Root,
		"INIT_CWD":          j.dir,
		"npm_execpath":      filepath.Join(bin, "yarn"),
		"npm_node_execpath": filepath.Join(bin, "node"),
		"npm_package_json":  j.m.path,
		"npm_config_user_agent": "yarn/" + in.version + " npm/? node/" + in.node.version + " " +
			in.node.platform + " " + in.node.arch,
	})
	for name, value := range map[string]string{"name": j.m.name, "version": j.m.version} {
		if value != "" {
			v["npm_package_"+name] = value
		}
	}
	// Yarn makes a wrapper of each program that the project's dependencies have.
	v["PATH"] = joinPath(append([]string{bin}, binDirs(j.Root, j.dir)...), v["PATH"])
	return v
}

// wrappers makes the folder of programs that yarn gives to scripts: node and
// yarn, as this workspace has them.
func (p *Planner) wrappers(in *install) (string, error) {
	return entry(&p.mu, &p.folders, in.exec+"\x00"+in.node.exec).get(func() (string, error) {
		dir, err := os.MkdirTemp("", "brood-yarn-")
		if err != nil {
			return "", errs.New(errs.Internal, "a folder for yarn's programs: %w", err)
		}
		node := "exec " + quoteAlways(in.node.exec)
		for name, line := range map[string]string{
			"node":     node,
			"yarn":     node + " " + quoteAlways(in.exec),
			"yarnpkg":  node + " " + quoteAlways(in.exec),
			"run":      node + " " + quoteAlways(in.exec) + " run",
			"node-gyp": node + " " + quoteAlways(in.exec) + " run --top-level node-gyp",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+line+` "$@"`+"\n"), 0o755); err != nil {
				return "", errors.Join(errs.New(errs.Internal, "yarn's programs: %w", err), os.RemoveAll(dir))
			}
		}
		return dir, nil
	})
}

func quoteAlways(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

var (
	word       = lazy.Regexp(`^(?:[A-Za-z0-9_@%+=:,./-]+|"[A-Za-z0-9_@%+=:,./ *-]*"|'[A-Za-z0-9_@%+=:,./ *-]*')+$`)
	assignment = lazy.Regexp(`^[A-Za-z_][A-Za-z0-9_]*=`)
)

// plain says why a line may mean something else to yarn's shell than to the
// system's; empty when it cannot: commands joined by &&, of words without
// anything to expand, whose programs are found.
func plain(line, path string) string {
	for cmd := range strings.SplitSeq(line, "&&") {
		words, ok := split(strings.TrimSpace(cmd))
		if !ok || len(words) == 0 {
			return "the script is more than plain commands"
		}
		for len(words) > 1 && assignment().MatchString(words[0]) {
			words = words[1:]
		}
		switch first := words[0]; {
		case first == "cd" || first == "true" || first == "false" || first == "exit":
		case first == "echo":
			if len(words) > 1 && words[1][0] == '-' {
				return "the script's echo has flags"
			}
		case strings.ContainsAny(first, `"'=/`) || first[0] == '-' || which(first, path) == "":
			return "the script's " + first + " is not one of PATH's programs"
		}
	}
	return ""
}

// split takes a command apart at blanks outside quotes; not ok when a word is
// not plain.
func split(cmd string) ([]string, bool) {
	var words []string
	var quote byte
	at := -1
	for i := 0; i <= len(cmd); i++ {
		if i == len(cmd) || quote == 0 && (cmd[i] == ' ' || cmd[i] == '\t') {
			if at >= 0 {
				if !word().MatchString(cmd[at:i]) {
					return nil, false
				}
				words = append(words, cmd[at:i])
				at = -1
			}
			continue
		}
		if at < 0 {
			at = i
		}
		switch c := cmd[i]; {
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case c == quote:
			quote = 0
		}
	}
	return words, quote == 0
}
