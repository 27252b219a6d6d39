package batch

import (
	"brood/internal/base/digest"
	"brood/internal/base/id"
)

// Record is one event for the batch's callers, numbered from 1 without gaps.
// Exactly one of the pointers is set. Its JSON uses the protocol's names; it
// is what a shell keeps to replay a batch.
type Record struct {
	Seq       uint64     `json:"seq"`
	Placement *Placement `json:"placement,omitempty"`
	Sync      *Sync      `json:"sync,omitempty"`
	Item      *Item      `json:"item,omitempty"`
	Done      *Summary   `json:"done,omitempty"`
}

// Placement says where a group, or a part of one, goes. It is recorded when
// the machine has reserved, so Count is what really goes there.
type Placement struct {
	Group     uint32     `json:"group"`
	Source    string     `json:"source"`
	Host      id.Machine `json:"host"`
	Count     uint32     `json:"count"`
	Attempt   uint32     `json:"attempt"`
	NeedsSync bool       `json:"needs_sync"`
	Reason    string     `json:"reason"`
}

// Sync is a copy's progress. The last of a copy has Done; a copy that failed
// ends with Done and without Verified.
type Sync struct {
	Name        string        `json:"name"`
	Digest      digest.Digest `json:"digest"`
	From        string        `json:"from"`
	BytesDone   uint64        `json:"bytes_done"`
	BytesTotal  uint64        `json:"bytes_total"`
	BytesReused uint64        `json:"bytes_reused"`
	Done        bool          `json:"done"`
	Verified    bool          `json:"verified"`
	To          id.Machine    `json:"to"`
}

// Item is the end of one fork: ready, or failed with Error and ErrorCode.
type Item struct {
	Index     uint32     `json:"index"`
	Group     uint32     `json:"group"`
	Source    string     `json:"source"`
	Name      id.Name    `json:"name"`
	Host      id.Machine `json:"host"` // of a failed fork: where it was tried last, may be empty
	Space     string     `json:"space"`
	Error     string     `json:"error"`
	ErrorCode ErrorCode  `json:"error_code"`
	Attempt   uint32     `json:"attempt"`
	ElapsedMS uint64     `json:"elapsed_ms"`
	ForkMS    uint64     `json:"fork_ms"`
}

// Summary is the end of a batch.
type Summary struct {
	OK           uint32                `json:"ok"`
	Failed       uint32                `json:"failed"`
	ElapsedMS    uint64                `json:"elapsed_ms"`
	PerHost      map[id.Machine]uint32 `json:"per_host"`
	PeakParallel map[id.Machine]uint32 `json:"peak_parallel"`
}

// ErrorCode is the protocol's short reason of a failed fork.
type ErrorCode string

// The error codes of a failed fork (F46).
const (
	CodeNoHost     ErrorCode = "no_host"     // no machine online that provides and can restore it
	CodeNoCapacity ErrorCode = "no_capacity" // such machines, all full
	CodeHostFailed ErrorCode = "host_failed" // the machine failed while at work
	CodeSyncFailed ErrorCode = "sync_failed" // the copy failed
	CodeForkFailed ErrorCode = "fork_failed" // the rest
)
