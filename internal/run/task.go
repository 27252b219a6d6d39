package run

import (
	"time"

	"brood/internal/base/id"
)

// Task is one command of one project in a run's graph, with everything about
// it resolved.
type Task struct {
	ID      id.Task
	Project id.Project
	// Name is the part of the ID behind "#".
	Name string
	// Dir is the project's folder under the workspace's root, with slashes;
	// "." is the root itself.
	Dir string
	// Command is what runs. A task without one is a group: it is done when its
	// dependencies are, and is not counted.
	Command Command
	// Deps are the tasks that must be done before this one begins: sorted, and
	// all of them in the same graph.
	Deps []id.Task
	// With are tasks that are started along with this one: sorted, in the same
	// graph, and not waited for.
	With []id.Task
	// Requested says that the user named the task.
	Requested bool
	// Args are the arguments after "--" that the task gets; they are in its
	// key. Turbo hands them to every task of a requested name, also to those
	// that came as dependencies; elsewhere requested tasks alone get them.
	Args []string
	// Excluded tasks are in the graph for their keys alone
	// (--exclude-dependencies): they are neither run nor restored nor counted,
	// and nobody waits for them. A task that runs over an excluded one does not
	// save its result, since nothing proves what it was made from.
	Excluded bool
	Definition
}

// Command is what a task executes: a script of package.json by its name, or a
// line for the shell. At most one of the two is set.
type Command struct {
	Script string
	Line   string
}

// Empty says that there is nothing to run.
func (c Command) Empty() bool { return c == Command{} }

// Definition is what a workspace's files say of a task, after extends,
// defaults and package configurations. Its JSON form is part of the task's
// key, so a field that must not change keys has no place here.
type Definition struct {
	// Inputs are globs relative to the project's folder. "!" in front takes
	// back, wherever in the list it stands, also what DefaultInputs adds. Globs
	// that begin with "/" ("!/") are relative to the workspace's root. A glob
	// that names a folder stands for all in it. Files that git ignores count
	// where a glob names them or begins in their folder, nothing of .git does,
	// and no file of a project nested in this one. They are sorted.
	Inputs []string `json:"inputs,omitempty"`
	// DefaultInputs adds all files of the project that git does not ignore.
	// Without it (turbo: inputs without $TURBO_DEFAULT$) the loader has put
	// package.json and turbo.json into Inputs.
	DefaultInputs bool `json:"defaultInputs,omitempty"`
	// Outputs are globs of the same kind. The task's output log is not among
	// them: it is always kept with the result.
	Outputs []string `json:"outputs,omitempty"`
	// Cache says that the result may be saved and restored.
	Cache bool `json:"cache"`
	// Persistent tasks are started, never awaited, and stopped with the run.
	Persistent  bool `json:"persistent,omitempty"`
	Interactive bool `json:"interactive,omitempty"`
	// Env are names, with * as wildcard and ! taking back wherever it stands,
	// of the variables that enter the key and reach the task. A backslash in
	// front of * or of a leading ! makes it a plain character. What a framework
	// reads by its own naming rule is among them.
	Env []string `json:"env,omitempty"`
	// PassThrough names variables that reach the task and do not enter the key.
	PassThrough []string `json:"passThrough,omitempty"`
	// Define are variables that the task gets whatever the run has.
	Define map[string]string `json:"define,omitempty"`
	// OutputLogs is full, hash-only, new-only, errors-only or none; empty is full.
	OutputLogs string        `json:"-"`
	Retries    int           `json:"-"`
	Timeout    time.Duration `json:"-"`
	// CPU (cores) and Memory (bytes) are what the task says it needs; 0 is
	// unknown: history is asked.
	CPU    float64 `json:"-"`
	Memory int64   `json:"-"`
	// Platform is os/arch, such as linux/arm64; empty is any.
	Platform string `json:"platform,omitempty"`
	// Additive tasks add to the outputs of an upstream and own only what they added.
	Additive bool `json:"additive,omitempty"`
	// Pin keeps the task on the machine of the run.
	Pin bool `json:"-"`
}

// Globals are what holds for every task of a workspace.
type Globals struct {
	// Env and PassThrough are as in Definition.
	Env         []string
	PassThrough []string
	// Dependencies are globs of files, relative to the root, that enter every key.
	Dependencies []string
	// Projects are folders of projects whose files, those that git does not
	// ignore, enter every key: in turbo workspaces what the root's package.json
	// depends on.
	Projects []string
	// Engines is what the root's package.json says of the programs it needs, as
	// JSON; "" is nothing.
	Engines string
	// EnvMode is strict or loose.
	EnvMode string
}
