// Package files knows the files of a workspace that can be inputs of tasks,
// each with the id of its content.
//
// Inputs are the files that git tracks and those that it neither tracks nor
// ignores, as they are in the work tree: a file that is missing there (deleted,
// or left out by a sparse checkout) is none. An id is git's object id of what
// git would record for the file, wherever it comes from: the index, where the
// stat data there proves that the file is what was recorded, else the bytes,
// with git's line ends where attributes or core.autocrlf ask for it. So an id
// does not depend on who has the tree, since when, or on line ends of the
// checkout. Files with an attribute that lets git record other bytes than lie
// there (filter, ident, working-tree-encoding) always have the id of the bytes:
// these are what tasks read, and many of them are recorded as the same. An
// unfetched Git LFS pointer is so told from the file it stands for. Without git
// the tree is walked, and .gitignore files are honoured.
//
// One git process lists the untracked files of the whole workspace, and none does
// where no name appeared since and the rules stand as they did: that is seen by
// the times of folders and of rules (folders.go), which are learnt beside the run
// after git was asked. A second one runs only where attributes or the
// configuration must be asked, a third only once files appear that were not there
// before. Repositories inside the workspace (submodules) are read the same way,
// each by its own git, and always ask.
//
// A Snapshot is read-only, safe for concurrent use, and owns at most one
// process, which Close ends; it waits for what is being learnt.
package files
