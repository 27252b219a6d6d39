// Package runs has the commands of runs: run itself, what explains them (why,
// runs), the local cache, and the measurement beside turbo. No daemon is
// needed: the files put the parts of a run together, and package orchestrator
// carries it out.
//
// The program that people start links this package and no protocol; so the
// clients of shared caches come in as a function, from package share.
package runs
