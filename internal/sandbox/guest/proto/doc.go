// Package proto is what the daemon and the program inside a sandbox say to
// each other: the resync pattern that starts every session, the records that
// carry the daemon's bytes, and the messages on each stream of a session.
//
// A session begins when the host writes magic || nonce. The magic is random
// for each sandbox, so it may be looked for at any offset of the byte stream:
// what a killed daemon left half-written, or what a fork's memory holds
// half-read, is skipped by both ends. From there on, host to guest, bytes
// travel in records with a length and a checksum (see Record), so that the
// tail of a torn record is never taken for data; guest to host they travel
// bare. Inside is a yamux session: one stream per request, opened by the host.
//
// A request is a length-prefixed JSON header, answered by a length-prefixed
// JSON reply; what follows depends on the operation. Nothing here does I/O of
// its own, starts goroutines or keeps state beyond the values it returns;
// values are for one goroutine at a time.
package proto
