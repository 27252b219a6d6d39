// Package cli is the brood command: it reads arguments, reaches the daemon
// through package client and nothing else, and shows what comes back, for
// people or as JSON. Runs need no daemon: the files run*.go put the parts of
// one together, and package orchestrator carries it out.
//
// Each command is one file named after it, with a constructor that newRoot
// lists; an app is one run of the command line and is handed to all of them.
// Commands return errors and Main turns them into text and exit code, so that
// no command ends the process itself. The daemon is a function that main
// passes in: nothing here links what runs sandboxes, which keeps the start of
// the program short.
//
// A command runs in one goroutine; those that watch several things at once own
// the goroutines they start and wait for them.
package cli
