package workspace

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"brood/internal/base/id"
	"brood/internal/run"
)

// resolve makes a task of a project out of what the files say. Projects with
// the same files share the result; only whether they have the script differs.
func (t *turbo) resolve(p *Project, name string, m *turboTask) (*Task, error) {
	has := p.Scripts[name] != "" && !m.optOut
	at := 0
	if has {
		at = 1
	}
	if m.resolved[at] != nil {
		return m.resolved[at], nil
	}
	task := &Task{}
	if has {
		task.Command = run.Command{Script: name}
	}
	if err := t.fill(p, name, m, task); err != nil {
		return nil, err
	}
	if !m.leaves() {
		m.resolved[at] = task
	}
	return task, nil
}

// leaves says whether globs lead out of the project's folder: then they depend
// on where that is.
func (m *turboTask) leaves() bool {
	out := func(i item) bool { return strings.Contains(i.text, "..") }
	return slices.ContainsFunc(m.inputs, out) || slices.ContainsFunc(m.outputs, out)
}

func (t *turbo) fill(p *Project, name string, m *turboTask, task *Task) error {
	task.Cache = m.cache == nil || *m.cache
	task.Persistent = m.persist != nil && *m.persist
	task.Interactive = m.interact != nil && *m.interact
	task.OutputLogs = m.logs
	if task.Interactive && task.Cache {
		return m.file.Wrong(m.line, "task %s is interactive, so it cannot be cached: say \"cache\": false", name)
	}
	if err := t.paths(p, m, task); err != nil {
		return err
	}
	var err error
	if task.Env, err = m.variables(m.env, "env"); err != nil {
		return err
	}
	if task.PassThrough, err = m.variables(m.pass, "passThroughEnv"); err != nil {
		return err
	}
	if task.DependsOn, err = m.refs(m.dependsOn, "dependsOn"); err != nil {
		return err
	}
	task.With, err = m.refs(m.with, "with")
	return err
}

// alwaysInputs are inputs of every task, whatever its globs say.
var alwaysInputs = []string{manifestName, "turbo.json", "turbo.jsonc"}

// paths resolves inputs and outputs.
func (t *turbo) paths(p *Project, m *turboTask, task *Task) error {
	globs, err := t.globs(p, m, m.inputs, "inputs")
	if err != nil {
		return err
	}
	task.DefaultInputs = len(m.inputs) == 0 || slices.ContainsFunc(m.inputs, func(i item) bool { return i.text == tokenDefault })
	if !task.DefaultInputs {
		globs = append(globs, alwaysInputs...)
	}
	if root := t.files[id.RootProject]; root.globalConfiguration && !task.Command.Empty() {
		for _, g := range root.global.dependencies {
			out, not := strings.CutPrefix(g, "!")
			globs = append(globs, map[bool]string{true: "!/", false: "/"}[not]+path.Clean(out))
		}
	}
	task.Inputs = sorted(globs)
	outputs, err := t.globs(p, m, m.outputs, "outputs")
	task.Outputs = sorted(outputs)
	return err
}

func (t *turbo) globs(p *Project, m *turboTask, items []item, field string) ([]string, error) {
	var globs []string
	for _, in := range items {
		if in.text == tokenDefault {
			continue
		}
		g, err := t.glob(p, m, in, field)
		if err != nil {
			return nil, err
		}
		if g != "" {
			globs = append(globs, g)
		}
	}
	return globs, nil
}

func (m *turboTask) variables(items []item, field string) ([]string, error) {
	var names []string
	for _, in := range items {
		if strings.HasPrefix(in.text, "$") {
			return nil, m.file.Wrong(in.line, "%s: write %q without the dollar sign", field, in.text)
		}
		names = append(names, in.text)
	}
	return sorted(names), nil
}

func (m *turboTask) refs(items []item, field string) ([]Ref, error) {
	var refs []Ref
	for _, in := range items {
		ref := parseRef(in.text)
		ref.Where = fmt.Sprintf("%s:%d", m.file.Path, in.line)
		switch {
		case strings.HasPrefix(in.text, "$"):
			return nil, m.file.Wrong(in.line, "%s: %q is no task; variables go into env", field, in.text)
		case ref.Name == "":
			return nil, m.file.Wrong(in.line, "%s: %q names no task", field, in.text)
		case ref.Up && field == "with":
			return nil, m.file.Wrong(in.line, "with: %q: tasks run along are of the same package or named with their package", in.text)
		}
		refs = append(refs, ref)
	}
	return sortRefs(refs), nil
}

// glob turns a glob of turbo into ours: $TURBO_ROOT$/ and a way up out of the
// project become one that begins at the root.
func (t *turbo) glob(p *Project, m *turboTask, in item, field string) (string, error) {
	text, not := strings.CutPrefix(in.text, "!")
	mark := ""
	if not {
		mark = "!"
	}
	rooted, ok := strings.CutPrefix(text, tokenRoot+"/")
	switch {
	case ok:
		text = path.Clean(rooted)
	case strings.Contains(text, tokenRoot):
		return "", m.file.Wrong(in.line, "%s: %s stands at the beginning, with a slash behind it: %s/file", field, tokenRoot, tokenRoot)
	case path.IsAbs(text):
		return "", m.file.Wrong(in.line, "%s: %q is an absolute path: write it from the package's folder, or from the root with %s/", field, text, tokenRoot)
	case !strings.HasPrefix(path.Clean(text), ".."):
		return mark + strings.TrimPrefix(text, "./"), nil
	default:
		text = path.Join(p.Dir, text)
	}
	if !inside(text) {
		t.w.warn(fmt.Sprintf("%s:%d: %s: %q leads out of the workspace and is left out", m.file.Path, in.line, field, in.text))
		return "", nil
	}
	return mark + "/" + text, nil
}
