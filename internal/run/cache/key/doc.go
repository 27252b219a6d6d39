// Package key computes the keys of tasks: equal keys, equal results.
//
// A key is the SHA-256 of groups of named parts: the task and its definition,
// the arguments, the variables it may see, what holds for the whole workspace,
// the lockfile as far as the project can see it, the keys of its dependencies,
// and its input files by path, mode and content. Nothing of the machine enters
// it: no absolute path, no time, no content of outputs. Values of variables
// enter as hashes, so that parts can be kept and shown.
//
// Outputs of the task, and of cached tasks of its project that it waits for, are
// no inputs unless they are committed: their tasks' keys stand for them. A
// committed file is always an input, since no restore ever touches it. A link
// counts with what it leads to inside the workspace.
//
// A Keyer works on one snapshot of the files and is safe for concurrent use.
package key
