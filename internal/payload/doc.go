// Package payload holds the two programs that brood carries inside itself:
// the runtime (our lean runsc) and the guest program that is the first
// process of every sandbox. `make build` builds them first and puts them into
// data/; a plain checkout has only a README there, so that `go build`, `go
// vet` and editors work, and whatever needs a program says `make build`.
//
// Programs are written once to $BROOD_HOME by rename under their content
// hash. All functions are safe for concurrent use, also between processes.
package payload
