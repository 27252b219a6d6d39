// Package glob matches a workspace's paths against the globs of a task:
// relative to the project's folder, or to the workspace's root when they begin
// with "/"; "!" takes back, wherever it stands in the list.
//
// A glob that names a folder stands for everything in it. Paths are relative
// to the workspace's root, with slashes, and need not be UTF-8. The package
// does no I/O, so it knows neither links nor what exists. A Set is read-only
// and safe for concurrent use.
package glob
