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
	// Requested says that the user named the task; only such tasks get the
	// arguments after "--".
	Requested bool
	Args      []string
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
	// Inputs are globs relative to the project's folder, "!" takes back;
	// DefaultInputs adds all files of the project that git does not ignore.
	// Globs that begin with "/" are relative to the workspace's root.
	Inputs        []string `json:"inputs,omitempty"`
	DefaultInputs bool     `json:"defaultInputs,omitempty"`
	// Outputs are globs of the same kind.
	Outputs []string `json:"outputs,omitempty"`
	// Cache says that the result may be saved and restored.
	Cache bool `json:"cache"`
	// Persistent tasks are started, never awaited, and stopped with the run.
	Persistent  bool `json:"persistent,omitempty"`
	Interactive bool `json:"interactive,omitempty"`
	// Env are names, with * as wildcard and ! taking back, of the variables
	// that enter the key and reach the task.
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
	// EnvMode is strict or loose.
	EnvMode string
}
