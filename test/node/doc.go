// Package node holds a client of the daemon that is not Go: scripts for Node
// with the usual gRPC packages, and tests that run them, against a real daemon
// and, to know that the scripts notice, against servers that break the rules.
//
// It has no code for others. Node and its packages come by "make testdeps";
// without them the tests fail and say so.
package node
