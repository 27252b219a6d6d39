// Package clean makes text of others fit for a terminal and for the log of a CI:
// names of packages, tasks and files, and messages that quote them.
//
// What a program reads (JSON, reports) is not cleaned, and neither is the output
// of tasks: it is theirs. All is safe for concurrent use.
package clean
