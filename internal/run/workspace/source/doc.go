// Package source reads configuration files written by people, JSON with
// comments and YAML, into one kind of tree that knows the line of everything.
//
// It owns syntax, lines, and the words of messages about wrong types and
// unknown keys; what the keys mean is for its callers. Input is bounded in
// size and depth, and YAML aliases share their nodes, so that no file makes
// more of itself than it is. Values are read-only once made, and then safe for
// concurrent use.
package source
