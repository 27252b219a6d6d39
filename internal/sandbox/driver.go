package sandbox

import (
	"context"
	"io"
	"os"

	"brood/internal/base/digest"
	"brood/internal/base/id"
)

// Driver runs sandboxes. It owns their processes and mounts, keeps no record
// of them beyond what its runtime needs, and knows nothing of names,
// checkpoint stores or batches.
//
// All methods may be called at any time from many goroutines; calls for one
// sandbox are made one at a time by the host, except Channel, Wait and
// Destroy, which may come during any other. A sandbox outlives the Driver and
// the process it is in: a new Driver on the same folders finds it by List.
//
// Errors carry a code of package errs: Unsupported for what this machine
// cannot do, InsufficientDisk, NotFound for a sandbox that does not run,
// FailedPrecondition for a wrong state. After an error of Start or Restore
// nothing of the sandbox is left.
type Driver interface {
	// Name is the word for the driver in records and on the wire.
	Name() string

	// Runtime is the program that new sandboxes and checkpoints are made
	// with; a checkpoint needs the same one to be restored.
	Runtime() id.Runtime

	// Start boots a sandbox with our guest program as its first process and
	// returns the host's end of its channel. The caller closes the channel;
	// closing it does not end the sandbox.
	Start(ctx context.Context, p StartParams) (Channel, error)

	// Capture saves memory, processes and disk of a sandbox into dir, which
	// exists and is empty. The caller has frozen the guest, so the instant is
	// one. The sandbox is as before afterwards, also when Capture fails; what
	// a failed one left in dir is the caller's to remove.
	Capture(ctx context.Context, sb id.Sandbox, dir string) error

	// Restore makes a new sandbox go on from what Capture saved. Its guest is
	// still frozen; its channel is fresh and wants a resync.
	Restore(ctx context.Context, p RestoreParams) (Channel, error)

	// Channel returns one more handle of the host's end of the channel of a
	// sandbox that runs: how a daemon that was started again takes it over.
	// Only one handle may be read at a time.
	Channel(ctx context.Context, sb id.Sandbox) (Channel, error)

	// Destroy ends a sandbox and removes all that it held. Destroying one that
	// is not there, or half there, is no error.
	Destroy(ctx context.Context, sb id.Sandbox) error

	// Wait returns when the sandbox has ended by itself or was destroyed.
	// NotFound when there is none.
	Wait(ctx context.Context, sb id.Sandbox) error

	// List returns every sandbox of which something exists, half made ones
	// included.
	List(ctx context.Context) ([]Live, error)

	// Close lets go of the runtime. With nothing left running it ends the
	// runtime's processes too; sandboxes that run go on.
	Close(ctx context.Context) error
}

// Channel is the host's end of the byte stream to the guest program. Close
// unblocks a Read.
type Channel = io.ReadWriteCloser

// Root is the filesystem a sandbox starts on. It is never written: writes go
// to a layer of the sandbox's own. Exactly one of EROFS and Host is set.
type Root struct {
	Digest digest.Digest `json:"digest"`          // what a checkpoint pins
	EROFS  string        `json:"erofs,omitempty"` // path of an EROFS image
	Host   *HostRoot     `json:"host,omitempty"`
}

// HostRoot is this machine's own root by allow-list: a skeleton folder with
// folders of the machine mounted into it.
type HostRoot struct {
	Dir   string `json:"dir"`
	Binds []Bind `json:"binds"`
}

// Bind shows Source of this machine at Target of the sandbox, both absolute.
type Bind struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// Shape is what a sandbox may use; zero values mean no limit of its own.
type Shape struct {
	CPUs      uint32 `json:"cpus,omitempty"`
	MemoryMiB uint64 `json:"memory_mib,omitempty"`
}

// StartParams says what to boot.
type StartParams struct {
	ID       id.Sandbox
	Root     Root
	Shape    Shape
	Hostname string
	Magic    string // the channel's secret, for the guest's environment
	Files    Files
}

// RestoreParams says what to go on with. Runtime, Root and Shape are those of
// the captured sandbox.
type RestoreParams struct {
	ID       id.Sandbox
	Dir      string // what Capture filled
	Runtime  id.Runtime
	Root     Root
	Shape    Shape
	Hostname string
	Magic    string
	Files    Files
}

// Files are the host files that the guest program writes to, opened for
// reading and writing. They are the caller's to close after the call.
type Files struct {
	Diagnostics *os.File    // what the guest program says of itself
	Log         [2]*os.File // the output of the sandbox's programs, in turns
}

// Live is a sandbox as its driver sees it.
type Live struct {
	ID      id.Sandbox
	Running bool // false: half made or ended
}
