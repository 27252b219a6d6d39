package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// system is what findRegistry asks; tests have their own.
type system struct {
	env  func(name string) string
	read func(file string) ([]byte, error)
	// say tells the user what takes long.
	say func(line string)
	// run runs a program and returns what it printed.
	run func(ctx context.Context, name string, args ...string) (string, error)
}

func realSystem(stderr io.Writer) system {
	say := func(line string) { fmt.Fprintln(stderr, line) }
	return system{env: os.Getenv, read: os.ReadFile, say: say, run: func(ctx context.Context, name string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.WaitDelay = time.Second
		out, err := cmd.Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return string(out), err
	}}
}

const (
	askNpm    = 15 * time.Second
	askPublic = 15 * time.Minute // it may have to be downloaded and built
)

// findRegistry returns the address of the registry, ending in a slash: what
// the user has set for npm, else the public one.
func findRegistry(ctx context.Context, s system) (string, error) {
	for _, name := range []string{"NPM_CONFIG_REGISTRY", "npm_config_registry"} {
		if v := s.env(name); v != "" {
			return address(v, name)
		}
	}
	var files []string
	if home := s.env("HOME"); home != "" {
		files = append(files, filepath.Join(home, ".npmrc"))
	}
	if prefix := s.env("PREFIX"); prefix != "" {
		files = append(files, filepath.Join(prefix, "etc", "npmrc"))
	}
	for _, file := range append(files, "/etc/npmrc") {
		raw, err := s.read(file)
		if err != nil {
			continue // most machines have none of them
		}
		if v := npmrcRegistry(string(raw), s.env); v != "" {
			return address(v, file)
		}
	}
	if v, err := ask(ctx, s, askNpm, "npm", "config", "get", "registry"); err == nil {
		if a, err := address(v, "npm config"); err == nil {
			return a, nil // an npm that answers otherwise has none to tell
		}
	}
	s.say("npm: no registry is set; asking a library for the public one, which takes a while once (NPM_CONFIG_REGISTRY spares it)")
	v, err := ask(ctx, s, askPublic, "go", "run", "brood/tools/npm/public")
	if err != nil {
		return "", fmt.Errorf("no registry is set: set NPM_CONFIG_REGISTRY to the address of an npm registry: %w", err)
	}
	return address(v, "brood/tools/npm/public")
}

func ask(ctx context.Context, s system, limit time.Duration, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := s.run(ctx, name, args...)
	return strings.TrimSpace(out), err
}

func address(v, from string) (string, error) {
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("the registry that %s gives is no http or https address: set NPM_CONFIG_REGISTRY to one", from)
	}
	return strings.TrimSuffix(u.String(), "/") + "/", nil
}

// npmrcRegistry returns the value of registry in a .npmrc, the last one when
// there are several, with ${NAME} replaced; empty: none.
func npmrcRegistry(text string, env func(string) string) string {
	found := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' {
			break // a section: what follows is no setting of npm's
		}
		key, value, _ := strings.Cut(line, "=")
		if strings.TrimSpace(key) != "registry" {
			continue
		}
		value = strings.TrimSpace(value)
		if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		found = expand(value, env)
	}
	return found
}

// expand replaces each ${NAME} whose variable is set.
func expand(s string, env func(string) string) string {
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "${")
		out.WriteString(before)
		if !ok {
			return out.String()
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed || env(name) == "" {
			out.WriteString("${")
			s = rest
			continue
		}
		out.WriteString(env(name))
		s = after
	}
}
