package workspace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"brood/internal/base/errs"
	"brood/internal/base/lazy"
	"brood/internal/run/workspace/source"
)

// Draft looks at a repository and returns a brood.yaml for it, which loads as
// it is. Nothing is written. A repository that has a brood.yaml or a turbo.json
// needs none: that is an error that says so.
func Draft(dir string) ([]byte, error) {
	dir, err := absolute(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range append([]string{broodFile}, turboFiles...) {
		if isThere(filepath.Join(dir, name)) {
			return nil, errs.New(errs.AlreadyExists, "%s has a %s: `brood run` reads it as it stands", dir, name)
		}
	}
	d := drafter{root: dir}
	if err := d.look(); err != nil {
		return nil, err
	}
	return d.text(), nil
}

// drafted is a task of a draft: name, and the lines below it.
type drafted struct {
	name  string
	lines []string
}

// draftedProject is a folder with tasks.
type draftedProject struct {
	dir   string
	tasks []drafted
}

type drafter struct {
	root string
	// globs are those of the package manager; scripts the names that its
	// packages use.
	globs    []string
	scripts  []string
	root0    []drafted
	projects []draftedProject
}

func (d *drafter) look() error {
	m, err := readManifest(d.root, manifestName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if m != nil {
		if err := d.packages(m); err != nil {
			return err
		}
	}
	if d.globs == nil && m != nil {
		d.root0 = scriptTasks(m)
	}
	d.root0 = d.add(d.root0, makeTasks(d.root))
	d.root0 = d.add(d.root0, languageTasks(d.root))
	return d.walk("", 0)
}

// add puts in what is not there by name.
func (d *drafter) add(have, more []drafted) []drafted {
	for _, t := range more {
		if !slices.ContainsFunc(have, func(h drafted) bool { return h.name == t.name }) {
			have = append(have, t)
		}
	}
	return have
}

// packages takes over the package manager's workspace.
func (d *drafter) packages(m *manifest) error {
	globs := m.Workspaces.Globs
	pnpm, err := readPnpm(d.root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if pnpm != nil && len(pnpm.packages) > 0 {
		globs = pnpm.packages
	}
	if len(globs) == 0 {
		return nil
	}
	dirs, err := members(d.root, globs, holding(manifestName))
	if err != nil {
		return err
	}
	d.globs = globs
	for _, dir := range dirs {
		p, err := readManifest(filepath.Join(d.root, dir), dir+"/"+manifestName)
		if err != nil {
			return err
		}
		for name := range p.Scripts {
			if checkTaskName(&source.File{}, source.Field{Key: name}) == nil && known[name] != nil && p.Scripts[name] != "" {
				d.scripts = append(d.scripts, name)
			}
		}
	}
	d.scripts = sorted(d.scripts)
	return nil
}

// known are the scripts whose names say what they do, with what a task of that
// name most likely is.
var known = map[string][]string{
	"build":      {"dependsOn: [^build]", `outputs: [dist/**, build/**, out/**, .next/**, "!.next/cache/**"]`},
	"test":       {"dependsOn: [^build]", "outputs: [coverage/**]"},
	"lint":       {},
	"typecheck":  {"dependsOn: [^build]"},
	"type-check": {"dependsOn: [^build]"},
	"check":      {"dependsOn: [^build]"},
	"format":     {"cache: false"},
	"clean":      {"cache: false"},
	"dev":        {"persistent: true"},
	"start":      {"persistent: true"},
	"watch":      {"persistent: true"},
	"serve":      {"persistent: true"},
	"preview":    {"persistent: true"},
}

// scriptTasks makes the scripts of a single package tasks of the root.
func scriptTasks(m *manifest) []drafted {
	var tasks []drafted
	for _, name := range sortedNames(m.Scripts) {
		lines, ok := known[name]
		if !ok || m.Scripts[name] == "" || strings.Contains(m.Scripts[name], "brood run") {
			continue
		}
		lines = slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.Contains(l, "^") })
		tasks = append(tasks, drafted{name, lines})
	}
	return tasks
}

func sortedNames(scripts map[string]string) []string {
	names := make([]string, 0, len(scripts))
	for n := range scripts {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

var target = lazy.Regexp(`^([A-Za-z][A-Za-z0-9_-]*)[ \t]*:([^=]|$)`)

// makeTasks makes well-known targets of a Makefile tasks. What they write is
// not known, so they are not cached.
func makeTasks(dir string) []drafted {
	var tasks []drafted
	for _, name := range []string{"GNUmakefile", "makefile", "Makefile"} {
		raw, err := source.Read(filepath.Join(dir, name), name)
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(bytes.NewReader(raw))
		lines.Buffer(nil, source.MaxSize+1)
		for lines.Scan() {
			m := target().FindStringSubmatch(lines.Text())
			if m == nil || known[m[1]] == nil || slices.ContainsFunc(tasks, func(t drafted) bool { return t.name == m[1] }) {
				continue
			}
			tasks = append(tasks, drafted{m[1], []string{"command: make " + m[1], "cache: false"}})
		}
		break // make reads the first of them
	}
	return tasks
}

// languageTasks are the usual tasks of a Go module, a crate, a Python project.
func languageTasks(dir string) []drafted {
	var tasks []drafted
	if isFile(filepath.Join(dir, "go.mod")) {
		tasks = append(tasks, drafted{"build", []string{"command: go build ./..."}}, drafted{"test", []string{"command: go test ./..."}}, drafted{"lint", []string{"command: go vet ./..."}})
	}
	if isFile(filepath.Join(dir, "Cargo.toml")) {
		tasks = append(tasks, drafted{"build", []string{"command: cargo build", "cache: false # target/ is cargo's own cache"}}, drafted{"test", []string{"command: cargo test"}})
	}
	if raw, err := source.Read(filepath.Join(dir, "pyproject.toml"), "pyproject.toml"); err == nil {
		if bytes.Contains(raw, []byte("pytest")) {
			tasks = append(tasks, drafted{"test", []string{"command: python -m pytest"}})
		}
		if bytes.Contains(raw, []byte("ruff")) {
			tasks = append(tasks, drafted{"lint", []string{"command: ruff check ."}})
		}
	}
	return tasks
}

// packageTasks are the scripts of a package that no package manager's workspace
// has.
func (d *drafter) packageTasks(dir string) []drafted {
	if d.globs != nil {
		return nil
	}
	m, err := readManifest(filepath.Join(d.root, dir), dir+"/"+manifestName)
	if err != nil {
		return nil // what is no package has no scripts
	}
	return scriptTasks(m)
}

// walk looks below the root, three deep, for projects that no workspace has.
func (d *drafter) walk(dir string, depth int) error {
	const deepest, most = 3, 1000
	entries, err := os.ReadDir(filepath.Join(d.root, dir))
	if err != nil || depth == deepest || len(d.projects) >= most {
		return nil //nolint:nilerr // a folder that cannot be read has no projects for us
	}
	for _, e := range entries {
		skip := []string{"node_modules", "vendor", "target", "testdata", "dist", "build", "out"}
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || slices.Contains(skip, e.Name()) {
			continue
		}
		sub := filepath.ToSlash(filepath.Join(dir, e.Name()))
		if tasks := d.add(d.packageTasks(sub), languageTasks(filepath.Join(d.root, sub))); len(tasks) > 0 {
			d.projects = append(d.projects, draftedProject{sub, tasks})
		}
		if err := d.walk(sub, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// text writes the draft. Strings are quoted as JSON quotes them, which YAML
// reads too.
func (d *drafter) text() []byte {
	var b bytes.Buffer
	b.WriteString("# What brood runs here. `brood run build` runs the tasks named build, each after\n# what it depends on, and keeps their results. All keys: docs/brood.schema.json.\n\nprojects:")
	if len(d.globs) == 0 && len(d.projects) == 0 {
		b.WriteString(" {}")
	}
	for _, g := range d.globs {
		fmt.Fprintf(&b, "\n  %s: {}", quoted(strings.TrimSuffix(g, "/")))
	}
	for _, p := range d.projects {
		fmt.Fprintf(&b, "\n  %s:\n    tasks:", quoted(p.dir))
		writeTasks(&b, p.tasks, "      ")
	}
	b.WriteString("\n")
	if len(d.scripts) > 0 {
		b.WriteString("\n# Scripts of package.json with these names are tasks.\ndefaults:\n  tasks:")
		var tasks []drafted
		for _, name := range d.scripts {
			tasks = append(tasks, drafted{name, slices.DeleteFunc(slices.Clone(known[name]), func(l string) bool {
				return strings.Contains(l, "^build") && !slices.Contains(d.scripts, "build")
			})})
		}
		writeTasks(&b, tasks, "    ")
		b.WriteString("\n")
	}
	if len(d.root0) > 0 {
		b.WriteString("\n# Tasks of the root.\ntasks:")
		writeTasks(&b, d.root0, "  ")
		b.WriteString("\n")
	}
	return b.Bytes()
}

func writeTasks(b *bytes.Buffer, tasks []drafted, indent string) {
	for _, t := range tasks {
		fmt.Fprintf(b, "\n%s%s:", indent, quoted(t.name))
		if len(t.lines) == 0 {
			b.WriteString(" {}")
		}
		for _, l := range t.lines {
			fmt.Fprintf(b, "\n%s  %s", indent, l)
		}
	}
}

var simple = lazy.Regexp(`^[A-Za-z][A-Za-z0-9_./-]*$`)

// quoted writes a key of YAML.
func quoted(s string) string {
	if simple().MatchString(s) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(s)) {
		return s
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return s // a string always has a JSON form
	}
	return string(raw)
}
