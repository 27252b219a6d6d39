// Package cli is what all commands of brood have in common: one run of the
// command line (App), the root of the tree of commands, how arguments are
// refused, and how results and errors are shown, for people or as JSON.
//
// Commands return errors and Main turns them into text and exit code, so that
// no command ends the process itself. It is linked by everything that a person
// starts, so it imports little.
//
// A command runs in one goroutine; those that watch several things at once own
// the goroutines they start and wait for them.
package cli
