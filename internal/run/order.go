package run

// Manager is the package manager of a workspace: npm, pnpm, yarn or bun, with
// its version as the workspace pins or has it. A workspace without package.json
// files has none: the zero value.
type Manager struct {
	Name    string
	Version string
}

// Order is what a worker is asked to execute: one attempt of a task.
type Order struct {
	Task *Task
	// Attempt counts from 1.
	Attempt int
	// Root is the workspace's root on the worker's machine, absolute.
	Root    string
	Manager Manager
	Globals Globals
	// Environ is the environment of the run, as os.Environ gives it; the worker
	// lets through what the task may see of it.
	Environ []string
}

// Inside is the variable by which the processes of a task know for which
// workspace's root they run; the worker sets it. A run that finds its own root
// there is refused: it would wait for what the outer one holds.
const Inside = "BROOD_RUN_ROOT"
