// Package batch decides how one request for many forks is carried out: which
// machine takes which forks, when each starts, what becomes of failures, and
// what the callers are told.
//
// It is a pure decider. A Batch does no I/O, starts no goroutine, reads no
// clock and draws no randomness; Step takes one event and returns effects,
// NextWake says when it wants a Tick. A Batch is not safe for concurrent use.
//
// # The shell
//
// A shell owns one Batch in one loop. First it resolves the sources, checks
// Names against every machine the batch may go to (Taken), and makes the
// Batch; then it feeds events, beginning with a Tick. After each Step, or
// several in a row, it
//
//  1. appends the records of Emit to its log,
//  2. writes the state (MarshalJSON) by rename,
//  3. performs the other effects in order and gives the records to callers.
//
// After a crash it drops logged records beyond Seq of the state it reads, and
// feeds Restarted with the forks of this batch that run here, before anything
// else. Effects that may have been lost are then returned again under their
// old ids, so every effect must be known by its id and done once.
//
// Every effect says how it is answered. An answer may come late, twice or out
// of order; an effect that cannot be answered because its machine is gone is
// answered by MachineFailed. On this machine nothing beats: the shell answers
// each effect itself, within limits of its own.
//
//   - AskMachines: Machines, within 1 s, without those that did not answer.
//     Sandboxes and reservations of this batch are left out of the sums.
//   - Reserve: Reserved or ReserveRefused. A reservation here lives as long as
//     the process; elsewhere as long as its lease.
//   - EnsureCheckpoint: SyncProgress, then Synced or SyncFailed. A copy of a
//     Temp source is marked temporary and held by the batch over there.
//   - StartFork: ForkReady after the identity is confirmed, or ForkFailed. The
//     sandbox's record names the token before anything is begun. The limit of
//     a whole machine over all batches is the shell's: it may wait with a
//     start, not refuse it.
//   - RemoveFork: ForkRemoved. It removes what that token made, nothing else.
//   - Release, StopCopy, DeleteTempCheckpoint: no answer; done at least once.
//   - Emit: records in order, Seq without gaps, the last one Done.
//
// Step goes on being called after Done for late answers, until no start is
// unaccounted for.
package batch
