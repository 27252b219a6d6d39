// Package program carries, compressed, the program that has all of brood, and
// replaces this process by it.
//
// The program that people start links only what a run without a shared cache
// needs, so that it starts at once: protocols, their descriptors, the daemon
// and the drivers are in the other one, and cost as much time at each start as
// a short command takes. `make build` builds that one first and packs it into
// data/; a plain checkout has only a README there, so that `go build`, `go vet`
// and editors work, and whatever needs the program says `make build`.
//
// It is written once to $BROOD_HOME/programs by rename, under its content hash.
// All functions are safe for concurrent use, also between processes.
package program
