// Package turbo compares what brood makes of a turbo repository with what turbo
// itself says: the selected tasks, their edges, commands, inputs, outputs and
// variables. Turbo is the judge; it is asked for a dry run, offline, and is
// among the programs that `make testdeps` fetches. Differences that are meant
// are in docs/turbo.md.
//
// A file of testdata is a repository with a script in front of it; the words of
// the script are in script_test.go.
package turbo
