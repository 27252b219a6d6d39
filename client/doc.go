// Package client is the Go SDK of brood: what a Go program imports to use a
// daemon. The command line uses nothing else.
//
// Dial connects to the daemon of a home over its Unix socket, or to a URL with
// a token. A Client may be used from many goroutines; a Batch and an Exec
// belong to one at a time. Contexts bound the call that takes them and nothing
// else: a batch and a command live in the daemon, go on without their caller,
// and are taken up again where a lost connection left them.
//
// Every error is an *Error with the daemon's reason, its text for people, and
// its facts for programs. The package keeps no state on disk and starts no
// daemon.
package client
