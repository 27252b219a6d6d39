package batch

import (
	"brood/internal/base/digest"
	"brood/internal/base/id"
)

// EffectID numbers what a batch wants done: unique in the batch, never 0,
// never used twice. As a token it names one attempt: an answer with another
// one is stale.
type EffectID uint64

// Effect is something that a shell does for a batch.
//
// A shell owns one Batch in one loop. First it resolves the sources, checks
// the names against every machine the batch may go to (Taken), and makes the
// Batch; then it feeds events, beginning with a Tick. What a Step returns it
// performs in order, after it has written down what it needs to go on: either
// the state (MarshalJSON, by rename; records in a log of their own that is cut
// back to Seq when the state is read), or the event and its time in a journal
// before the Step (to be stepped through again; only while Rules is the same).
//
// In a new process it feeds Restarted with the forks of this batch that run
// here, before anything else. Effects that may have been lost are then
// returned again under their old ids: an effect is known by its id and done
// once.
//
// Each effect says how it is answered. Answers may come late, twice or out of
// order, but one must come: when the machine is gone, that is MachineFailed.
// This machine does not beat; the shell answers for it within limits of its
// own, and reports its free memory by Beat when it likes.
//
//   - AskMachines: Machines, within 1 s, without those that did not answer.
//   - Reserve: Reserved or ReserveRefused. A reservation here ends with the
//     process, elsewhere with its lease.
//   - EnsureCheckpoint: SyncProgress, then Synced or SyncFailed. A copy of a
//     Temp source is temporary and held by the batch over there.
//   - StartFork: ForkReady after the identity is confirmed, or ForkFailed. The
//     sandbox's record names the token before anything is begun. A limit over
//     all batches may make a start wait, not fail.
//   - RemoveFork: ForkRemoved. On this machine it is done before the rest of
//     what the Step returned: the name is free for whom it goes to next.
//   - Release, StopCopy, DeleteTempCheckpoint: none; done at least once.
//   - Emit: none; records go to callers in order, Done is the last.
//
// After Done, Step goes on being called for late answers until no start is
// unaccounted for, so that what they made is removed.
type Effect interface{ effect() }

// AskMachines asks for a snapshot: answer Machines.
type AskMachines struct {
	ID   EffectID
	Only id.Machine // the one machine that matters; empty for all
}

// Reserve asks a machine to keep room for Count forks of this batch before
// anything moves: answer Reserved or ReserveRefused. The machine counts CPUs
// and MemoryMiB for each. Its limit of sandboxes always holds; counted memory
// is a limit too when Counted is set, else really free memory decides when
// forks start.
type Reserve struct {
	ID        EffectID // the grant
	Machine   id.Machine
	Digest    digest.Digest
	Count     int
	CPUs      uint32
	MemoryMiB uint64
	Counted   bool
}

// Release gives back Count places of a grant. The place of a fork that became
// ready is its sandbox's own and is not given back.
type Release struct {
	ID      EffectID
	Grant   EffectID
	Machine id.Machine
	Count   int
}

// EnsureCheckpoint copies a checkpoint to a machine that lacks it: answer
// SyncProgress as it goes, then Synced or SyncFailed.
type EnsureCheckpoint struct {
	ID      EffectID // the copy
	Machine id.Machine
	Name    string
	Digest  digest.Digest
}

// StopCopy ends a copy that no fork waits for any more. No answer.
type StopCopy struct {
	ID      EffectID
	Copy    EffectID
	Machine id.Machine
}

// StartFork starts one fork: answer ForkStarted (optional), then ForkReady or
// ForkFailed. A second one with the same ID is the same start.
type StartFork struct {
	ID        EffectID // the token
	Grant     EffectID
	Machine   id.Machine
	Index     int
	Group     int
	Attempt   int
	Name      id.Name
	Source    string
	Digest    digest.Digest
	CPUs      uint32
	MemoryMiB uint64
}

// RemoveFork removes whatever the start Token made or is making, and only
// that: another sandbox of the same name stays. Answer ForkRemoved, also when
// there was nothing or the lease on that machine ran out.
type RemoveFork struct {
	ID      EffectID
	Token   EffectID
	Machine id.Machine
	Index   int
	Name    id.Name
	Why     string
}

// DeleteTempCheckpoint deletes the checkpoint that was made for this batch
// alone, here and on Machines: none of its forks became ready. (With ready
// forks it goes with the last of them, which is the lease book's business.)
type DeleteTempCheckpoint struct {
	ID       EffectID
	Digest   digest.Digest
	Machines []id.Machine
}

// Emit gives a record to the batch's callers.
type Emit struct{ Record Record }

func (AskMachines) effect()          {}
func (Reserve) effect()              {}
func (Release) effect()              {}
func (EnsureCheckpoint) effect()     {}
func (StopCopy) effect()             {}
func (StartFork) effect()            {}
func (RemoveFork) effect()           {}
func (DeleteTempCheckpoint) effect() {}
func (Emit) effect()                 {}
