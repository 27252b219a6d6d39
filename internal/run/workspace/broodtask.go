package workspace

import (
	"strings"
	"time"

	"brood/internal/base/lazy"
	"brood/internal/run/workspace/source"
)

// tokenOwn stands in inputs for all files of the project.
const tokenOwn = "$DEFAULT$"

// broodTask is a task as brood.yaml says it; nil and zero are unsaid.
type broodTask struct {
	file *source.File
	line int
	name string

	command                  string
	dependsOn, with          []item
	inputs, outputs          []item
	env, pass                []string
	define                   map[string]string
	cache, persist, interact *bool
	additive, pin            *bool
	retries                  *int
	timeout                  time.Duration
	cpu                      float64
	memory                   int64
	platform, logs           string
}

func readBroodTask(f *source.File, what string, field source.Field, all bool) (*broodTask, error) {
	t := &broodTask{file: f, line: field.Line, name: field.Key}
	if err := checkTaskName(f, field); err != nil {
		return nil, err
	}
	if field.Value.Kind == source.Null {
		return t, nil
	}
	if field.Value.Kind == source.String { // the short form: the command alone
		t.command = field.Value.Text
		return t, nil
	}
	return t, f.Each(field.Value, what, t.keys(f, what, all), f.Refuse(what))
}

func checkTaskName(f *source.File, field source.Field) error {
	if name := field.Key; name == "" || len(name) > 200 || strings.TrimSpace(name) != name || strings.ContainsAny(name, "#*\n") || name[0] == '^' || name[0] == '!' || name[0] == '$' {
		return f.Wrong(field.Line, "%q is no name for a task: it has no #, * or spaces around it, and does not begin with ^, ! or $", name)
	}
	return nil
}

// keys are the keys of a task; all is false where it stands for every task.
func (t *broodTask) keys(f *source.File, what string, all bool) source.Keys {
	keys := source.Keys{
		"inputs":      t.items(f, what+".inputs", &t.inputs),
		"outputs":     t.items(f, what+".outputs", &t.outputs),
		"env":         variables(f, what+".env", &t.env),
		"passThrough": variables(f, what+".passThrough", &t.pass),
		"define":      t.readDefine(f, what+".define"),
		"cache":       f.Bool(what+".cache", &t.cache),
		"retries": func(n *source.Node) error {
			t.retries = new(int)
			return count(f, what+".retries", t.retries)(n)
		},
		"timeout":    duration(f, what+".timeout", &t.timeout),
		"cpu":        amount(f, what+".cpu", &t.cpu),
		"memory":     byteSize(f, what+".memory", &t.memory),
		"platform":   platform(f, what+".platform", &t.platform),
		"outputLogs": f.OneOf(what+".outputLogs", &t.logs, "full", "hash-only", "new-only", "errors-only", "none"),
		"pin":        f.Bool(what+".pin", &t.pin),
	}
	if all {
		keys["description"] = source.Skip
		keys["command"] = f.String(what+".command", &t.command)
		keys["dependsOn"] = t.items(f, what+".dependsOn", &t.dependsOn)
		keys["with"] = t.items(f, what+".with", &t.with)
		keys["persistent"] = f.Bool(what+".persistent", &t.persist)
		keys["interactive"] = f.Bool(what+".interactive", &t.interact)
		keys["additive"] = f.Bool(what+".additive", &t.additive)
	}
	return keys
}

// items reads a list of strings with their lines; it is never nil after.
func (t *broodTask) items(f *source.File, what string, to *[]item) func(*source.Node) error {
	return func(n *source.Node) error {
		var texts []string
		if err := f.Strings(what, &texts)(n); err != nil {
			return err
		}
		*to = make([]item, len(texts))
		for i, text := range texts {
			(*to)[i] = item{text, n.Items[i].Line}
		}
		return nil
	}
}

var (
	variableName    = lazy.Regexp(`^[A-Za-z_][A-Za-z0-9_]*$`)
	variablePattern = lazy.Regexp(`^!?[A-Za-z0-9_*\\!]+$`)
)

func variables(f *source.File, what string, to *[]string) func(*source.Node) error {
	return func(n *source.Node) error {
		if err := f.Strings(what, to)(n); err != nil {
			return err
		}
		for i, name := range *to {
			if !variablePattern().MatchString(name) {
				return f.Wrong(n.Items[i].Line, "%s: %q is no name of a variable; * stands for any characters, ! in front takes back", what, name)
			}
		}
		return nil
	}
}

func (t *broodTask) readDefine(f *source.File, what string) func(*source.Node) error {
	return func(n *source.Node) error {
		if err := f.Want(n, what, source.Map); err != nil {
			return err
		}
		t.define = make(map[string]string, len(n.Fields))
		for _, v := range n.Fields {
			if !variableName().MatchString(v.Key) {
				return f.Wrong(v.Line, "%s: %q is no name of a variable", what, v.Key)
			}
			switch v.Value.Kind {
			case source.String, source.Number, source.Bool:
				t.define[v.Key] = v.Value.Text
			default:
				return f.Wrong(v.Line, "%s.%s takes a string, this is %s", what, v.Key, v.Value.Kind)
			}
		}
		return nil
	}
}

// over lays a later word on the task over this one.
func (t *broodTask) over(o *broodTask) {
	if o == nil {
		return
	}
	t.file, t.line, t.name = o.file, o.line, o.name
	set(&t.command, o.command, o.command != "")
	set(&t.dependsOn, o.dependsOn, o.dependsOn != nil)
	set(&t.with, o.with, o.with != nil)
	set(&t.inputs, o.inputs, o.inputs != nil)
	set(&t.outputs, o.outputs, o.outputs != nil)
	set(&t.env, o.env, o.env != nil)
	set(&t.pass, o.pass, o.pass != nil)
	set(&t.define, o.define, o.define != nil)
	set(&t.cache, o.cache, o.cache != nil)
	set(&t.persist, o.persist, o.persist != nil)
	set(&t.interact, o.interact, o.interact != nil)
	set(&t.additive, o.additive, o.additive != nil)
	set(&t.pin, o.pin, o.pin != nil)
	set(&t.retries, o.retries, o.retries != nil)
	set(&t.timeout, o.timeout, o.timeout != 0)
	set(&t.cpu, o.cpu, o.cpu != 0)
	set(&t.memory, o.memory, o.memory != 0)
	set(&t.platform, o.platform, o.platform != "")
	set(&t.logs, o.logs, o.logs != "")
}

func set[T any](to *T, value T, said bool) {
	if said {
		*to = value
	}
}
