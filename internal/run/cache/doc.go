// Package cache stores what tasks that succeeded left behind, and puts it back:
// their outputs in the workspace, their output text, what they used.
//
// It owns the local store, the outputs of tasks in the work tree, and the queue
// of uploads to a shared cache; it does not compute keys and decides nothing. A
// restore fetches and checks everything first, in a folder .brood of the
// workspace's root, then removes what lies under the task's outputs and is not
// part of the result, then places each file by rename. Files that are right
// already are left alone, so a hit whose tree matches touches nothing. Never
// touched, and never stored, are .git, files that git tracks, and the files of
// projects nested in the task's.
//
// Whatever goes wrong with the cache is a miss: damage is removed and so
// repaired by the next save, a shared cache that fails is warned of once. Two
// runs take turns at a task's outputs, and at restoring into one project; so do
// tasks beside each other, whose outputs overlap, each of which owns what it
// added.
//
// A Cache is safe for concurrent use; one task must not be saved and restored
// at the same time. Close waits for uploads.
package cache
