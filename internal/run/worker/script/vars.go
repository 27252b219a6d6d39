package script

import (
	"maps"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

func clone(v map[string]string) map[string]string {
	c := make(map[string]string, len(v)+32)
	maps.Copy(c, v)
	return c
}

func environ(v map[string]string) []string {
	out := make([]string, 0, len(v))
	for name, value := range v {
		if name != "" && !strings.ContainsAny(name, "=\x00") && !strings.Contains(value, "\x00") {
			out = append(out, name+"="+value)
		}
	}
	sort.Strings(out)
	return out
}

// binDirs are the folders whose programs lead PATH: the project's and the
// root's.
func binDirs(root, dir string) []string {
	dirs := []string{filepath.Join(dir, "node_modules", ".bin")}
	if root != dir {
		dirs = append(dirs, filepath.Join(root, "node_modules", ".bin"))
	}
	return dirs
}

func joinPath(dirs []string, rest string) string {
	if rest != "" {
		dirs = append(dirs, rest)
	}
	return strings.Join(dirs, string(os.PathListSeparator))
}

// shell is a step that gives a line to the system's shell.
func shell(event, line, dir string, v map[string]string) Step {
	return Step{Event: event, Path: "/bin/sh", Argv: []string{"sh", "-c", line}, Dir: dir, Env: environ(v)}
}
