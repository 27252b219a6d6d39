package run

import (
	"time"

	"brood/internal/base/digest"
)

// Status is how a task stands. The last five are final.
type Status string

// The states of a task.
const (
	Waiting Status = "waiting" // for its dependencies
	Ready   Status = "ready"   // for a free place
	Running Status = "running"
	Success Status = "success"
	Cached  Status = "cached" // its result was restored, or stood there already
	Failed  Status = "failed"
	Skipped Status = "skipped" // a task that it waits on did not succeed
	Aborted Status = "aborted" // the run was stopped
)

// Final says that nothing more happens to the task.
func (s Status) Final() bool {
	switch s {
	case Success, Cached, Failed, Skipped, Aborted:
		return true
	}
	return false
}

// Key addresses the result of a task: equal keys, equal results.
type Key = digest.Digest

// Usage is what a task's whole process tree used.
type Usage struct {
	// CPU is user and system time.
	CPU time.Duration `json:"cpu"`
	// PeakMemory is in bytes: the most that was resident at once.
	PeakMemory int64 `json:"peakMemory"`
	// Sampled says that no cgroup counted and the numbers were read every so often.
	Sampled bool `json:"sampled,omitempty"`
}

// Result is what one attempt to execute a task gave.
type Result struct {
	// Exit is the exit code; a task ended by a signal has 128 plus its number.
	Exit   int
	Signal string
	// Began and Ended are by the clock of the machine that executed.
	Began, Ended time.Time
	Usage        Usage
	TimedOut     bool
	// Interrupted says that the task had the terminal and ended as a key pressed
	// there makes it (Ctrl-C, Ctrl-\): a person's doing.
	Interrupted bool
	// Err says why the command could not be run at all. It is the machine's
	// fault, not the task's.
	Err error
}

// OK says that the task succeeded.
func (r Result) OK() bool { return r.Err == nil && r.Exit == 0 && !r.TimedOut }
