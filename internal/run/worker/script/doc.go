// Package script says how a task's command runs: which lines, one after the
// other, by which shell, and in which environment.
//
// A script of package.json runs as its workspace's package manager would run
// it, pre and post scripts and environment included, but directly, without the
// time that the manager takes to start. Where that would not be the same, the
// plan is to start the manager: see docs/scripts.md for when, and for what
// differs on purpose.
//
// The package starts no task. It reads package.json and the manager's
// configuration, and asks node for its version once. A Planner may be used from many
// goroutines; it remembers what it found out about managers, so that a worker
// makes one and keeps it.
package script
