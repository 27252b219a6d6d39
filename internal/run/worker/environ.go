package worker

import (
	"strings"

	"brood/internal/run"
)

// always are the variables that every task sees, isolated or not: those that
// turbo 2.11 hands to tasks in its strict mode, found by running it. Tasks of
// existing workspaces rely on them.
var always = parsePatterns([]string{
	"PATH", "HOME", "USER", "SHELL", "PWD", "TZ", "LANG", "TMP", "TEMP", "TMPDIR", "CI",
	"TERM", "TERM_PROGRAM", "COLORTERM", "FORCE_COLOR", "NO_COLOR", "DISPLAY", "XAUTHORITY",
	"XDG_RUNTIME_DIR", "XDG_DATA_*", "DBUS_SESSION_BUS_ADDRESS",
	"NODE_OPTIONS", "COREPACK_*", "PNPM_HOME", "NPM_CONFIG_STORE_DIR", "pnpm_config_verify_deps_before_run",
	"LD_LIBRARY_PATH", "LD_PRELOAD", "LIBPATH", "DYLD_FALLBACK_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "NIX_*", "__NIXOS_*",
	"DOCKER_*", "BUILDKIT_*", "COMPOSE_*",
	"GITHUB_*", "RUNNER_*", "VERCEL", "VERCEL_*", "NEXT_*", "NOW_BUILDER", "USE_OUTPUT_FOR_EDGE_FUNCTIONS",
	"VC_MICROFRONTENDS_CONFIG_FILE_NAME", "TURBO_*",
	"VSCODE_*", "ELECTRON_RUN_AS_NODE", "JB_IDE_*", "JB_INTERPRETER", "_JETBRAINS_TEST_RUNNER_RUN_SCOPE_TYPE",
	"WINDIR", "SYSTEMROOT", "SYSTEMDRIVE", "USERPROFILE", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA",
	"PROGRAMDATA", "ProgramFiles", "ProgramFiles(x86)", "COMSPEC", "PATHEXT",
})

// never are the variables that no task sees, whatever a workspace asks for:
// what steers brood, and the credentials of the cache.
var never = parsePatterns([]string{"BROOD_*", "TURBO_TOKEN", "TURBO_REMOTE_CACHE_SIGNATURE_KEY"})

// vars is an environment by name.
type vars map[string]string

// parseEnviron reads what os.Environ gives; of a name that is there twice the
// last value stands, as for a program that gets such a list from exec.
func parseEnviron(list []string) vars {
	v := make(vars, len(list))
	for _, kv := range list {
		name, value, ok := strings.Cut(kv, "=")
		if ok && name != "" {
			v[name] = value
		}
	}
	return v
}

// taskVars is what of the run's environment the task of an order sees, before
// the package manager's own variables are added. deny names variables with
// credentials of this run.
func taskVars(o run.Order, deny patterns) vars {
	d := o.Task.Definition
	var lists []patterns
	loose := o.Globals.EnvMode == "loose"
	if !loose {
		lists = []patterns{
			always,
			parsePatterns(o.Globals.Env), parsePatterns(o.Globals.PassThrough),
			parsePatterns(d.Env), parsePatterns(d.PassThrough),
		}
	}
	// Only the task's own passThrough takes back from the other lists too.
	back := parsePatterns(d.PassThrough).back
	seen := vars{}
	for name, value := range parseEnviron(o.Environ) {
		if loose || !anyMatch(back, name) && passes(lists, name) {
			seen[name] = value
		}
	}
	for name, value := range d.Define {
		seen[name] = value
	}
	for name := range seen {
		if never.match(name) || deny.match(name) {
			delete(seen, name)
		}
	}
	return seen
}

func passes(lists []patterns, name string) bool {
	for _, l := range lists {
		if l.match(name) {
			return true
		}
	}
	return false
}

// patterns is a list of names of variables: * stands for any characters, a
// leading ! takes back, a backslash makes the next character ordinary.
type patterns struct{ take, back []string }

func parsePatterns(list []string) patterns {
	var p patterns
	for _, s := range list {
		if rest, ok := strings.CutPrefix(s, "!"); ok {
			p.back = append(p.back, rest)
		} else if s != "" {
			p.take = append(p.take, s)
		}
	}
	return p
}

func (p patterns) match(name string) bool {
	return anyMatch(p.take, name) && !anyMatch(p.back, name)
}

func anyMatch(list []string, name string) bool {
	for _, p := range list {
		if matchName(p, name) {
			return true
		}
	}
	return false
}

// matchName is linear in the name for each star: the last star alone is tried
// again.
func matchName(pattern, name string) bool {
	p, n := 0, 0
	star, mark := -1, 0
	for n < len(name) {
		if p < len(pattern) && pattern[p] == '*' {
			star, mark = p, n
			p++
			continue
		}
		c, width := literal(pattern, p)
		if width > 0 && c == name[n] {
			p += width
			n++
			continue
		}
		if star < 0 {
			return false
		}
		mark++
		p, n = star+1, mark
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// literal returns the character that pattern asks for at p, and how many bytes
// of the pattern say so; 0 at its end.
func literal(pattern string, p int) (byte, int) {
	if p >= len(pattern) {
		return 0, 0
	}
	if pattern[p] == '\\' && p+1 < len(pattern) {
		return pattern[p+1], 2
	}
	return pattern[p], 1
}
