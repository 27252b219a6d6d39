package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"brood/internal/base/id"
	"brood/internal/run/workspace/source"
)

// broodDoc is one brood.yaml, of the root or of a project.
type broodDoc struct {
	file  *source.File
	about projectDoc
	// The rest is a root's alone.
	root     bool
	settings RunSettings
	globs    []string
	entries  []projectEntry
	defaults broodTask
	named    map[string]*broodTask // defaults by the name of the task
	globals  struct{ env, pass, files []string }
	envMode  string
}

// projectDoc is what a file says of one project.
type projectDoc struct {
	file  *source.File
	line  int
	name  string
	needs []item
	tasks []*broodTask
}

// projectEntry is what a root says of the projects that a glob names.
type projectEntry struct {
	glob  string
	about projectDoc
}

// parseBrood reads a brood.yaml. shown is its path in messages.
func parseBrood(shown string, raw []byte, root bool) (*broodDoc, error) {
	f, err := source.YAML(shown, raw)
	if err != nil {
		return nil, err
	}
	return broodOf(f, root)
}

// broodOf makes out what a brood.yaml says.
func broodOf(f *source.File, root bool) (*broodDoc, error) {
	d := &broodDoc{file: f, root: root, named: map[string]*broodTask{}}
	keys := d.about.keys(f, "")
	if root {
		for k, on := range d.settings.runKeys(f) {
			keys[k] = on
		}
		keys["projects"] = d.readProjects
		keys["defaults"] = d.readDefaults
		keys["env"] = f.Strings("env", &d.globals.env)
		keys["passThrough"] = f.Strings("passThrough", &d.globals.pass)
		keys["globalInputs"] = f.Strings("globalInputs", &d.globals.files)
		keys["envMode"] = f.OneOf("envMode", &d.envMode, "strict", "loose")
	}
	keys["$schema"] = source.Skip
	refuse := f.Refuse("")
	err := f.Each(f.Root, "", keys, func(at source.Field, nearest string) error {
		if !root && rootKeys[at.Key] {
			return f.Wrong(at.Line, "%q belongs into the brood.yaml of the root", at.Key)
		}
		return refuse(at, nearest)
	})
	return d, err
}

// rootKeys may stand in the root's brood.yaml only.
var rootKeys = map[string]bool{
	"projects": true, "defaults": true, "env": true, "passThrough": true, "globalInputs": true, "envMode": true, "workers": true, "adapter": true,
	"relay": true, "token": true, "headers": true, "cache": true, "unmeasured": true, "timeouts": true,
}

func (p *projectDoc) keys(f *source.File, what string) source.Keys {
	p.file = f
	return source.Keys{
		"name": func(n *source.Node) error {
			p.line = n.Line
			if err := f.String(what+"name", &p.name)(n); err != nil {
				return err
			}
			return checkProjectName(f, n)
		},
		"dependencies": func(n *source.Node) error {
			var names []string
			if err := f.Strings(what+"dependencies", &names)(n); err != nil {
				return err
			}
			for i, name := range names {
				p.needs = append(p.needs, item{name, n.Items[i].Line})
			}
			return nil
		},
		"tasks": func(n *source.Node) error {
			if err := f.Want(n, what+"tasks", source.Map); err != nil {
				return err
			}
			for _, field := range n.Fields {
				t, err := readBroodTask(f, what+"tasks."+field.Key, field, true)
				if err != nil {
					return err
				}
				p.tasks = append(p.tasks, t)
			}
			return nil
		},
	}
}

func checkProjectName(f *source.File, n *source.Node) error {
	if n.Text == "" || len(n.Text) > 214 || strings.ContainsAny(n.Text, "#*!^{}[]\\ \t\n") || n.Text == string(id.RootProject) {
		return f.Wrong(n.Line, "%q is no name for a project: use letters, digits, - _ . @ and /", n.Text)
	}
	return nil
}

// readProjects reads a list of globs, or a mapping from globs to what holds
// for the projects there.
func (d *broodDoc) readProjects(n *source.Node) error {
	f := d.file
	if n.Kind == source.List {
		return f.Strings("projects", &d.globs)(n)
	}
	if n.Kind != source.Map {
		return f.Wrong(n.Line, "projects takes a list of globs, or a mapping from globs to projects, this is %s", n.Kind)
	}
	for _, field := range n.Fields {
		what := "projects." + field.Key
		e := projectEntry{glob: field.Key}
		e.about.file, e.about.line = f, field.Line
		if field.Value.Kind != source.Null {
			if err := f.Each(field.Value, what, e.about.keys(f, what+"."), f.Refuse(what)); err != nil {
				return err
			}
		}
		d.entries = append(d.entries, e)
	}
	return nil
}

// readDefaults reads what holds for all tasks and, under tasks, for those of a
// name.
func (d *broodDoc) readDefaults(n *source.Node) error {
	f := d.file
	keys := d.defaults.keys(f, "defaults", false)
	keys["tasks"] = func(n *source.Node) error {
		if err := f.Want(n, "defaults.tasks", source.Map); err != nil {
			return err
		}
		for _, field := range n.Fields {
			t, err := readBroodTask(f, "defaults.tasks."+field.Key, field, true)
			if err != nil {
				return err
			}
			d.named[field.Key] = t
		}
		return nil
	}
	return f.Each(n, "defaults", keys, f.Refuse("defaults"))
}

// readBrood reads the brood.yaml of a folder; nil without error: it has none.
func readBrood(root, dir string, isRoot bool) (*broodDoc, error) {
	shown := path.Join(filepath.ToSlash(dir), broodFile)
	raw, err := source.Read(filepath.Join(root, dir, broodFile), shown)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseBrood(shown, raw, isRoot)
}

// readAside reads the brood.yaml of a root whose tasks another file defines, as
// one without projects leaves them. What it says of the runs holds all the same;
// of the rest is told that it does not.
func (w *Workspace) readAside() error {
	d, err := readBrood(w.Root, ".", true)
	if d == nil || err != nil {
		return err
	}
	w.Settings.Brood = &d.settings
	ofRuns := new(RunSettings).runKeys(d.file)
	ruling := w.Kind
	if ruling == Single {
		ruling = Scripts
	}
	for _, field := range d.file.Root.Fields {
		if _, holds := ofRuns[field.Key]; !holds && field.Key != "$schema" {
			w.warn(fmt.Sprintf("%s: %s is not used: the tasks are those of %s, unless brood.yaml has projects", d.file.At(field.Line), field.Key, ruling))
		}
	}
	return nil
}
