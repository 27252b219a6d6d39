package orchestrator

import (
	"encoding/json"
	"time"

	"brood/internal/base/id"
	"brood/internal/run"
)

// Event is something that happened in a run. Its JSON form, with the fields
// "event" and "at" in front, is a line of `brood run --json`: fields are added
// to it and never taken away or given another meaning.
type Event interface{ kind() string }

// Began is the first event of a run.
type Began struct {
	Run         string     `json:"run"`
	Root        string     `json:"root"`
	Concurrency int        `json:"concurrency"`
	Tasks       []TaskInfo `json:"tasks"`
}

// TaskInfo is a task of the run; those it waits on come before it.
type TaskInfo struct {
	Task       id.Task    `json:"task"`
	Project    id.Project `json:"project"`
	Name       string     `json:"name"`
	Dir        string     `json:"dir"`
	Deps       []id.Task  `json:"deps"`
	Group      bool       `json:"group,omitempty"` // nothing is executed; not counted
	Persistent bool       `json:"persistent,omitempty"`
	// Interactive tasks that end may have the terminal from Started, which the
	// listener has returned from by then, to Retrying or Ended.
	Interactive bool `json:"interactive,omitempty"`
	// ExpectedMS is what it took by its history; 0: never seen.
	ExpectedMS int64 `json:"expectedMs,omitempty"`
	// Logs is which output the workspace wants shown of it.
	Logs string `json:"outputLogs,omitempty"`
}

// Keyed says that a task has its key and what the cache answered.
type Keyed struct {
	Task id.Task `json:"task"`
	Key  run.Key `json:"key,omitempty"`
	// Cache is hit, miss, off (the task is not cached, or reading is switched
	// off) or unknown (the key could not be derived).
	Cache string `json:"cache"`
	// Remote says that the hit came from the remote cache.
	Remote bool `json:"remote,omitempty"`
	// Unrestored says why a hit could not be restored: it is a miss then, which
	// repairs what is stored.
	Unrestored string `json:"unrestored,omitempty"`
}

// Waiting says that another run of the workspace executes a task or restores its
// outputs: this one waits for it, and may find its result.
type Waiting struct {
	Task id.Task `json:"task"`
	// For is a task instead that writes the same files, in this run or another.
	For id.Task `json:"for,omitempty"`
}

// Started says that an attempt of a task begins.
type Started struct {
	Task    id.Task `json:"task"`
	Attempt int     `json:"attempt"`
	Key     run.Key `json:"key,omitempty"`
}

// Output is what a task wrote since the last one, at most every 100 ms.
type Output struct {
	Task id.Task `json:"task"`
	Text string  `json:"text"`
	// Replayed says that it is the stored output of a hit.
	Replayed bool `json:"replayed,omitempty"`
}

// Retrying says that an attempt failed and the task is tried again.
type Retrying struct {
	Task     id.Task `json:"task"`
	Attempt  int     `json:"attempt"` // the one that failed
	Exit     int     `json:"exit"`
	TimedOut bool    `json:"timedOut,omitempty"`
}

// Ended is a task's outcome; it comes once for every task that is no group.
type Ended struct {
	Task     id.Task    `json:"task"`
	Status   run.Status `json:"status"`
	Key      run.Key    `json:"key,omitempty"`
	Exit     int        `json:"exit"`
	Signal   string     `json:"signal,omitempty"`
	TimedOut bool       `json:"timedOut,omitempty"`
	// Error says why the command could not be run, or a hit not be restored.
	Error    string `json:"error,omitempty"`
	Attempts int    `json:"attempts,omitempty"`
	// Cause is the task whose failure skipped this one.
	Cause id.Task `json:"cause,omitempty"`
	// BeganMS is from the beginning of the run; TookMS what was spent here.
	BeganMS int64 `json:"beganMs"`
	TookMS  int64 `json:"tookMs"`
	// RanMS is what the last attempt's command took alone.
	RanMS int64 `json:"ranMs,omitempty"`
	// SavedMS is what the run that produced a hit had spent.
	SavedMS int64 `json:"savedMs,omitempty"`
	// CPUMS and PeakMemory are of the process tree; a hit's are its producer's.
	CPUMS      int64 `json:"cpuMs,omitempty"`
	PeakMemory int64 `json:"peakMemory,omitempty"`
	Sampled    bool  `json:"sampled,omitempty"`
	Remote     bool  `json:"remote,omitempty"`
	// Touched says that a hit changed files; else all stood there already.
	Touched bool `json:"touched,omitempty"`
	// Unsaved says why a success that might have been saved was not.
	Unsaved string `json:"unsaved,omitempty"`
}

// Warning is something to know that stops nothing.
type Warning struct {
	Task    id.Task `json:"task,omitempty"`
	Message string  `json:"message"`
}

// Uploading says that the tasks are done and the shared cache is waited for.
type Uploading struct {
	Left int `json:"left"` // results
}

// Finished is the last event of a run.
type Finished struct {
	Run string `json:"run"`
	// Status is success, failed or aborted.
	Status  run.Status `json:"status"`
	Tasks   int        `json:"tasks"`
	Success int        `json:"success"`
	Cached  int        `json:"cached"`
	Failed  int        `json:"failed"`
	Skipped int        `json:"skipped"`
	Aborted int        `json:"aborted"`
	// Unsaved is how many succeeded and might have been saved, and were not.
	Unsaved int   `json:"unsaved,omitempty"`
	WallMS  int64 `json:"wallMs"`
	// WorkMS is what the executed tasks took, added up; SavedMS what the hits
	// would have taken.
	WorkMS  int64 `json:"workMs"`
	SavedMS int64 `json:"savedMs"`
	CPUMS   int64 `json:"cpuMs"`
	// Failures are the tasks that failed, in the order in which they did.
	Failures []id.Task `json:"failures,omitempty"`
	// CriticalPath is the chain of tasks that took longest: no number of cores
	// would have made the run shorter than it.
	CriticalPath []Step `json:"criticalPath,omitempty"`
	// Slowest are the executed tasks that took longest, at most ten.
	Slowest []Step `json:"slowest,omitempty"`
}

// Step is a task with the time that it took in this run.
type Step struct {
	Task   id.Task `json:"task"`
	TookMS int64   `json:"tookMs"`
}

func (Began) kind() string     { return "began" }
func (Keyed) kind() string     { return "keyed" }
func (Waiting) kind() string   { return "waiting" }
func (Started) kind() string   { return "started" }
func (Output) kind() string    { return "output" }
func (Retrying) kind() string  { return "retrying" }
func (Ended) kind() string     { return "ended" }
func (Warning) kind() string   { return "warning" }
func (Uploading) kind() string { return "uploading" }
func (Finished) kind() string  { return "finished" }

// Encode is an event as one line of JSON, without its end.
func Encode(at time.Time, e Event) ([]byte, error) {
	body, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	line := make([]byte, 0, len(body)+64)
	line = append(line, `{"event":"`...)
	line = append(line, e.kind()...)
	line = append(line, `","at":"`...)
	line = at.UTC().AppendFormat(line, "2006-01-02T15:04:05.000Z")
	line = append(line, `",`...)
	return append(line, body[1:]...), nil
}
