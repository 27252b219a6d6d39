package batch

import (
	"brood/internal/base/id"
	"brood/internal/sandbox/roster"
)

// Event is something that a shell reports to a batch. Every event may come
// late, twice or out of order.
type Event interface{ event() }

// Tick says that time has passed. Deliver what has arrived before it: only a
// Tick declares a silent machine failed.
type Tick struct{}

// Machines is a snapshot of all machines that can be asked (for a batch that
// goes to one machine: of that one). SandboxesUsed and the reserved values
// leave out what this batch itself has there.
type Machines struct {
	Ask  EffectID // the AskMachines it answers; 0 when nobody asked
	List []roster.Machine
}

// Reserved answers Reserve: Count forks have their place, all that were asked
// for or as many as fit.
type Reserved struct {
	Grant   EffectID
	Machine id.Machine
	Count   int
}

// ReserveRefused answers Reserve: nothing fits. Why is for people.
type ReserveRefused struct {
	Grant   EffectID
	Machine id.Machine
	Why     string
}

// SyncProgress is how far a copy is. From is a machine, "s3" or "volume".
type SyncProgress struct {
	Copy        EffectID
	Machine     id.Machine
	From        string
	BytesDone   uint64
	BytesTotal  uint64
	BytesReused uint64
}

// Synced ends a copy well: the machine holds the verified checkpoint. The
// progress is the last one; a machine that needed nothing leaves it zero.
type Synced struct{ SyncProgress }

// SyncFailed ends a copy badly.
type SyncFailed struct {
	Copy    EffectID
	Machine id.Machine
	Error   string
}

// ForkStarted says that the machine has begun with a StartFork.
type ForkStarted struct {
	Token   EffectID
	Index   int
	Machine id.Machine
}

// ForkReady ends a StartFork well: identity confirmed, may be handed out.
type ForkReady struct {
	Token   EffectID
	Index   int
	Machine id.Machine
	ForkMS  uint64
	// Space is where to connect to; empty on this machine.
	Space string
}

// Cause says whose fault a failed fork is.
type Cause int

// The causes. Own: the fork's own, trying elsewhere would not help.
// Host: its machine's, or nobody knows. Capacity: the machine was full.
const (
	Own Cause = iota
	Host
	Capacity
)

// ForkFailed ends a StartFork badly. With Own and Capacity the machine has
// removed what it had begun.
type ForkFailed struct {
	Token   EffectID
	Index   int
	Machine id.Machine
	Cause   Cause
	Error   string
	ForkMS  uint64
}

// ForkRemoved answers RemoveFork: nothing of that start is left there.
type ForkRemoved struct{ Token EffectID }

// MachineFailed says that a machine refuses or closed the connection.
type MachineFailed struct {
	Machine id.Machine
	Error   string
}

// Beat is a machine's sign of life, every 2 s. FreeMemoryMiB is what is really
// free there, 0 when not measured.
type Beat struct {
	Machine       id.Machine
	FreeMemoryMiB uint64
}

// Cancel stops what has not started.
type Cancel struct{}

// Restarted says that the shell is a new process which has read the state
// back. Alive are the forks of this batch on this machine that run and whose
// identity is confirmed.
type Restarted struct{ Alive []Alive }

// Alive is a fork that outlived its daemon.
type Alive struct {
	Token  EffectID
	Index  int
	ForkMS uint64
}

func (Tick) event()           {}
func (Machines) event()       {}
func (Reserved) event()       {}
func (ReserveRefused) event() {}
func (SyncProgress) event()   {}
func (Synced) event()         {}
func (SyncFailed) event()     {}
func (ForkStarted) event()    {}
func (ForkReady) event()      {}
func (ForkFailed) event()     {}
func (ForkRemoved) event()    {}
func (MachineFailed) event()  {}
func (Beat) event()           {}
func (Cancel) event()         {}
func (Restarted) event()      {}
