// Package batch decides how one request for many forks is carried out: which
// machine takes which forks, when each starts, what becomes of failures, and
// what the callers are told (F40-F50).
//
// It is a pure decider. A Batch does no I/O, starts no goroutine, reads no
// clock and draws no randomness; Step takes one event and returns effects,
// NextWake says when it wants a Tick. What a shell owes it is written at
// Effect. A Batch is not safe for concurrent use: one loop owns it.
//
// The state can be written and read back after any Step, and a Batch that is
// given the same events at the same times does the same, as long as Rules is
// the same. Records, the written state and the request have the protocol's
// field names.
package batch
