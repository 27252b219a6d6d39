// Package files knows the files of a workspace that can be inputs of tasks,
// each with the id of its content.
//
// Inputs are the files that git tracks and those that it neither tracks nor
// ignores, as they are in the work tree; one that is missing there is none. An
// id is git's object id of what git would record, so that it does not depend on
// who has the tree or since when; of files that a filter rewrites it is that of
// the bytes, which is what tasks read. Without git the tree is walked, and
// .gitignore files are honoured.
//
// One git process lists what is untracked, and none does where no name appeared
// since and the rules stand as they did (folders.go), which is learnt beside the
// run. A second one runs only where attributes or the configuration must be
// asked, a third once files appear. Repositories inside the workspace are read
// the same way, each by its own git, and always ask.
//
// A Snapshot is read-only, safe for concurrent use, and owns at most one
// process, which Close ends; it waits for what is being learnt.
package files
