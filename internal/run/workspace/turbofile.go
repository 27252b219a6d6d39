package workspace

import (
	"fmt"
	"path/filepath"
	"strings"

	"brood/internal/run/workspace/source"
)

// turboFile is one turbo.json, of the root or of a package.
type turboFile struct {
	file    *source.File
	root    bool
	extends []string
	tasks   map[string]*turboTask
	global  turboGlobal
	// globalConfiguration moves the global keys into "global" and makes its
	// inputs those of every task.
	globalConfiguration bool
	warnings            []string
}

// turboGlobal are the keys that hold for the whole workspace.
type turboGlobal struct {
	dependencies, env, passThrough []string
	envMode, concurrency           string
}

// item is an entry of a list, with its line.
type item struct {
	text string
	line int
}

// turboTask is a task as one file says it; nil is unsaid.
type turboTask struct {
	file      *source.File
	line      int
	extends   *bool
	dependsOn []item
	inputs    []item
	outputs   []item
	env       []item
	pass      []item
	with      []item
	cache     *bool
	persist   *bool
	interact  *bool
	logs      string
	said      bool // something beyond extends
	// optOut: the files take the task away from the project, script or not.
	optOut bool
	// resolved is the finished task, without and with a script.
	resolved [2]*Task
}

const (
	tokenDefault = "$TURBO_DEFAULT$"
	tokenRoot    = "$TURBO_ROOT$"
	tokenExtends = "$TURBO_EXTENDS$"
)

// parseTurbo reads a turbo.json. shown is its path in messages; root says
// whether it is the root's.
func parseTurbo(shown string, raw []byte, root bool) (*turboFile, error) {
	f, err := source.JSON(shown, raw)
	if err != nil {
		return nil, err
	}
	return turboOf(f, root)
}

// turboOf makes out what a turbo.json says.
func turboOf(f *source.File, root bool) (*turboFile, error) {
	t := &turboFile{file: f, root: root, tasks: map[string]*turboTask{}}
	keys := source.Keys{
		"extends": f.Strings("extends", &t.extends),
		"tasks":   t.readTasks,
		"futureFlags": func(n *source.Node) error {
			flag := n.Get("globalConfiguration")
			t.globalConfiguration = flag != nil && flag.Bool
			return f.Want(n, "futureFlags", source.Map)
		},
	}
	// What follows is about turbo itself, not about tasks.
	for _, k := range []string{
		"$schema", "agentGuidance", "boundaries", "cacheDir", "cacheMaxAge", "cacheMaxSize", "daemon",
		"dangerouslyDisablePackageManagerCheck", "noUpdateNotifier", "remoteCache", "setup", "tags", "ui", "experimentalObservability",
	} {
		keys[k] = source.Skip
	}
	if root {
		t.globalKeys(keys)
	}
	if err := f.Each(f.Root, "", keys, t.unknown("")); err != nil {
		return nil, err
	}
	return t, t.check()
}

func (t *turboFile) globalKeys(keys source.Keys) {
	f, g := t.file, &t.global
	keys["globalDependencies"] = f.Strings("globalDependencies", &g.dependencies)
	keys["globalEnv"] = f.Strings("globalEnv", &g.env)
	keys["globalPassThroughEnv"] = f.Strings("globalPassThroughEnv", &g.passThrough)
	keys["envMode"] = f.OneOf("envMode", &g.envMode, "strict", "loose")
	keys["concurrency"] = f.String("concurrency", &g.concurrency)
	keys["global"] = func(n *source.Node) error {
		inner := source.Keys{
			"inputs":         f.Strings("global.inputs", &g.dependencies),
			"env":            f.Strings("global.env", &g.env),
			"passThroughEnv": f.Strings("global.passThroughEnv", &g.passThrough),
			"envMode":        f.OneOf("global.envMode", &g.envMode, "strict", "loose"),
			"concurrency":    f.String("global.concurrency", &g.concurrency),
		}
		for _, k := range []string{"cacheDir", "cacheMaxAge", "cacheMaxSize", "daemon", "dangerouslyDisablePackageManagerCheck", "noUpdateNotifier", "remoteCache", "ui"} {
			inner[k] = source.Skip
		}
		return f.Each(n, "global", inner, t.unknown("global"))
	}
}

// unknown warns: a newer turbo may know the key.
func (t *turboFile) unknown(what string) func(source.Field, string) error {
	return func(at source.Field, nearest string) error {
		hint := ""
		if at.Key == "pipeline" && what == "" {
			return t.file.Wrong(at.Line, "%q is of turbo 1: rename it to \"tasks\"", at.Key)
		}
		if !t.root && strings.HasPrefix(at.Key, "global") {
			nearest, hint = "", ": only the root's turbo.json may have it"
		}
		t.warnings = append(t.warnings, fmt.Sprintf("%s:%d: %s%s", t.file.Path, at.Line, source.Unknown(at.Key, what, nearest), hint))
		return nil
	}
}

func (t *turboFile) check() error {
	if t.root {
		return nil
	}
	if len(t.extends) == 0 {
		return t.file.Wrong(1, `has no "extends": a package's turbo.json begins with "extends": ["//"]`)
	}
	if t.extends[0] != "//" {
		return t.file.Wrong(t.file.Root.Get("extends").Line, `extends %q first: the root, "//", comes first`, t.extends[0])
	}
	return nil
}

func (t *turboFile) readTasks(n *source.Node) error {
	if err := t.file.Want(n, "tasks", source.Map); err != nil {
		return err
	}
	for _, field := range n.Fields {
		if field.Value.Kind == source.Null {
			continue
		}
		if !t.root && strings.Contains(field.Key, "#") {
			return t.file.Wrong(field.Line, "%q: a package's turbo.json names its own tasks without the package: %q",
				field.Key, field.Key[strings.IndexByte(field.Key, '#')+1:])
		}
		task, err := t.readTask(field)
		if err != nil {
			return err
		}
		t.tasks[field.Key] = task
	}
	return nil
}

func (t *turboFile) readTask(field source.Field) (*turboTask, error) {
	f, what := t.file, "tasks."+field.Key
	task := &turboTask{file: f, line: field.Line}
	keys := source.Keys{
		"extends":        f.Bool(what+".extends", &task.extends),
		"dependsOn":      t.items(what+".dependsOn", &task.dependsOn),
		"inputs":         t.inputs(what+".inputs", &task.inputs),
		"outputs":        t.items(what+".outputs", &task.outputs),
		"env":            t.items(what+".env", &task.env),
		"passThroughEnv": t.items(what+".passThroughEnv", &task.pass),
		"with":           t.items(what+".with", &task.with),
		"cache":          f.Bool(what+".cache", &task.cache),
		"persistent":     f.Bool(what+".persistent", &task.persist),
		"interactive":    f.Bool(what+".interactive", &task.interact),
		"outputLogs":     f.OneOf(what+".outputLogs", &task.logs, "full", "hash-only", "new-only", "errors-only", "none"),
		"description":    source.Skip,
		"interruptible":  source.Skip, // of turbo watch
		"tags":           source.Skip, // of turbo boundaries
	}
	if err := f.Each(field.Value, what, keys, t.unknown(what)); err != nil {
		return nil, err
	}
	if t.root && task.extends != nil {
		return nil, f.Wrong(field.Line, "%s.extends is for the turbo.json of a package", what)
	}
	for _, known := range field.Value.Fields {
		_, is := keys[known.Key]
		task.said = task.said || is && known.Key != "extends"
	}
	return task, nil
}

// items reads a list of strings with their lines; it is never nil after.
func (t *turboFile) items(what string, to *[]item) func(*source.Node) error {
	return func(n *source.Node) error {
		var all []string
		if err := t.file.Strings(what, &all)(n); err != nil {
			return err
		}
		*to = make([]item, len(all))
		for i, text := range all {
			(*to)[i] = item{text, n.Items[i].Line}
		}
		return nil
	}
}

// inputs reads strings and turbo's structured inputs. Our keys hold the keys of
// all upstream tasks, so files that dependencies make are in them already;
// files named by mode jit are read when the key is made.
func (t *turboFile) inputs(what string, to *[]item) func(*source.Node) error {
	return func(n *source.Node) error {
		if err := t.file.Want(n, what, source.List); err != nil {
			return err
		}
		*to = []item{}
		for _, in := range n.Items {
			switch in.Kind {
			case source.String:
				*to = append(*to, item{in.Text, in.Line})
			case source.Map:
				if err := t.structured(what, in, to); err != nil {
					return err
				}
			default:
				return t.file.Wrong(in.Line, "%s takes strings or objects, this is %s", what, in.Kind)
			}
		}
		return nil
	}
}

func (t *turboFile) structured(what string, n *source.Node, to *[]item) error {
	f := t.file
	var mode string
	var globs, from []string
	var defaults *bool
	err := f.Each(n, what, source.Keys{
		"mode":         f.OneOf(what+".mode", &mode, "startup", "jit", "dependencyOutputs"),
		"globs":        f.Strings(what+".globs", &globs),
		"from":         f.Strings(what+".from", &from),
		"withDefaults": f.Bool(what+".withDefaults", &defaults),
	}, t.unknown(what))
	if err != nil || mode == "dependencyOutputs" {
		return err
	}
	if defaults != nil && *defaults {
		*to = append(*to, item{tokenDefault, n.Line})
	}
	for _, g := range globs {
		*to = append(*to, item{g, n.Line})
	}
	return nil
}

// readTurbo reads the turbo.json of a folder; nil without error: it has none.
func readTurbo(root, dir string, isRoot bool) (*turboFile, error) {
	for _, name := range turboFiles {
		shown := filepath.ToSlash(filepath.Join(dir, name))
		raw, err := source.Read(filepath.Join(root, dir, name), shown)
		if notThere(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return parseTurbo(shown, raw, isRoot)
	}
	return nil, nil
}
