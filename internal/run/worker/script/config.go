package script

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"brood/internal/base/errs"
)

// config is what the .npmrc files that count for a workspace set: names and
// values as written, variables filled in.
type config map[string]string

// configs remembers them by root.
func (p *Planner) config(root string, in *install, vars map[string]string) (config, error) {
	key := strings.Join([]string{root, in.name, in.exec, vars["HOME"], vars["PATH"]}, "\x00")
	return entry(&p.mu, &p.configs, key).get(func() (config, error) { return readConfig(root, in, vars) })
}

// readConfig reads the files from the weakest to the strongest.
func readConfig(root string, in *install, vars map[string]string) (config, error) {
	c := config{}
	files := []string{filepath.Join(in.lib, "npmrc")}
	if in.node.exec != "" {
		files = append(files, filepath.Join(prefix(in.node), "etc", "npmrc"))
	}
	if home := vars["HOME"]; home != "" {
		files = append(files, filepath.Join(home, ".npmrc"))
	}
	read := os.ReadFile // a person's own settings may be a device or a pipe
	own := filepath.Join(root, ".npmrc")
	for _, file := range append(files, own) {
		if file == own {
			read = readText
		}
		b, err := read(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, errs.New(errs.FailedPrecondition, "reading %s: %w", file, err)
		}
		if err := c.parse(b, vars); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// prefix is npm's global prefix: the folder that has node's bin.
func prefix(n node) string { return filepath.Dir(filepath.Dir(n.exec)) }

// parse reads an ini file of names and values. What is not that simple (lists,
// sections, quotes) only the manager can read right.
func (c config) parse(b []byte, vars map[string]string) error {
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok {
			value = "true"
		}
		if line[0] == '[' || strings.HasSuffix(name, "[]") || strings.ContainsAny(value, `"';#\`) {
			return inexact("an .npmrc file has more than names and values")
		}
		value, ok = fill(value, vars)
		if !ok {
			return inexact("an .npmrc file names a variable that is not set")
		}
		c[name] = value
	}
	if err := lines.Err(); err != nil {
		return inexact("an .npmrc file has a line longer than a megabyte")
	}
	return nil
}

// fill replaces ${NAME}.
func fill(s string, vars map[string]string) (string, bool) {
	for {
		at := strings.Index(s, "${")
		if at < 0 {
			return s, true
		}
		end := strings.IndexByte(s[at:], '}')
		if end < 0 {
			return s, true
		}
		value, ok := vars[s[at+2:at+end]]
		if !ok || strings.Contains(value, "${") {
			return "", false
		}
		s = s[:at] + value + s[at+end+1:]
	}
}

// only refuses settings that change how scripts run.
func (c config) only(but ...string) error {
	for _, name := range []string{
		"script-shell", "shell-emulator", "node-options", "prefix", "ignore-scripts", "scripts-prepend-node-path",
		"enable-pre-post-scripts", "use-node-version", "verify-deps-before-run", "node-gyp", "user-agent",
	} {
		value, set := c[name]
		if !set || value == "false" && name != "enable-pre-post-scripts" && name != "verify-deps-before-run" {
			continue
		}
		allowed := false
		for _, b := range but {
			allowed = allowed || b == name
		}
		if !allowed {
			return inexact("an .npmrc file sets " + name)
		}
	}
	return nil
}

// flatName is how a setting is called as a variable.
func flatName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_':
			return r
		}
		return '_'
	}, name)
}
