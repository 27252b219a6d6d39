// Package dispatch decides what a run does next: whose key is derived, which
// hit is restored, which task begins when, what becomes of a failure, and when
// the run is over.
//
// It is a pure decider. A Machine does no I/O, starts no goroutine, reads no
// clock and draws no randomness: Step takes one event and returns effects, in
// the order in which a shell must begin them. What the shell owes is written at
// each effect. Tasks are known by their index in the list that New is given.
//
// Two lanes run beside each other. Executions are few (the cores) and wait for
// their dependencies. Restores of hits are wider and wait for nobody: a key
// names all that led to a result, so a hit is right whatever becomes of the
// tasks before it. Persistent tasks take no place in either lane, and neither does
// an attempt while it waits for somebody outside of the run.
//
// A Machine is not safe for concurrent use: one loop owns it. Its state can be
// written between two steps, and read back (Encode, Decode).
package dispatch
