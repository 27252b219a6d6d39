// Package run is the contract of a run: its tasks, what became of them, and
// the parts that a run is made of. Nothing here runs.
//
// A run takes a selection of a workspace's tasks (package workspace reads the
// workspace, package graph selects and orders), asks the cache for each, lets
// a worker execute what the cache does not answer, and keeps a history of what
// each task took. The orchestrator alone decides; the parts meet only in it.
//
// Values of this package are read-only once they are handed on, and then safe
// for concurrent use.
package run
