// Package workspace reads a repository: where its root is, which projects it
// has and how they depend on each other, and what its files say of every task.
//
// It owns brood.yaml, turbo.json and what is read of package.json and of the
// package managers' own workspace files. It selects and orders nothing (package
// graph does) and runs nothing. It reads files and starts no process.
//
// A Workspace is read-only once Open has returned it, save for what Task keeps
// for itself; it belongs to one goroutine.
package workspace
