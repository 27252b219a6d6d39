package dispatch

// Event is something that happened outside.
type Event interface{ event() }

// Keyed answers Derive: the task has a key, and the cache was asked.
type Keyed struct {
	Task   int
	Answer Answer
}

// Answer is what the cache said.
type Answer int

// The answers of a cache.
const (
	// Miss: nothing under this key, or the task is not cached.
	Miss Answer = iota
	Hit
	// NoKey: the key could not be derived. The task runs and is not saved, and so
	// do all that wait on it, since their keys need this one.
	NoKey
)

// Restored answers Restore. A restore that failed is a miss that was found late.
type Restored struct {
	Task int
	OK   bool
}

// Ran answers Run: the attempt is over and its process gone.
type Ran struct {
	Task   int
	Ending Ending
	// Unproven says that the result stands but was made from inputs that changed
	// meanwhile, so that nothing made from it may be saved.
	Unproven bool
}

// Waits says that an attempt waits for somebody outside of the run. It takes no
// place meanwhile; an interactive or persistent one stays as it is.
type Waits struct{ Task int }

// Ready says that an attempt waits no more. Owed by the decider: one Go, unless
// the attempt is stopped.
type Ready struct{ Task int }

// Ending is how an attempt ended.
type Ending int

// The endings of an attempt.
const (
	Succeeded Ending = iota
	// Broke: the command failed, or took too long.
	Broke
	// Unable: the command could not be run here at all; trying again is no use.
	Unable
	// Interrupted: a person ended it at the terminal that it had. It failed, and
	// is not tried again.
	Interrupted
	// Found: another run of the workspace made the result while this one waited
	// for it, and it is restored.
	Found
)

// Abort stops the run: nothing begins any more.
type Abort struct{}

func (Keyed) event()    {}
func (Restored) event() {}
func (Ran) event()      {}
func (Waits) event()    {}
func (Ready) event()    {}
func (Abort) event()    {}
