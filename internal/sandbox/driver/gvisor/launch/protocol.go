//go:build linux

package launch

import (
	"os"

	"brood/internal/base/errs"
)

// Protocol is the version of frames and messages. A launcher of an older
// runtime lives as long as its sandboxes, so a daemon has to speak to older
// versions; a launcher answers only its own.
const Protocol = 1

// SocketName is the launcher's socket inside the run directory.
const SocketName = "launcher.sock"

// Bounds of one message. A list of ten thousand containers takes about 1.5
// MiB; the kernel passes at most 253 descriptors at once, we need a handful.
const (
	maxPayload = 4 << 20
	maxFiles   = 32
)

// Op names a request.
type Op string

// The requests a launcher answers.
const (
	OpInfo       Op = "info"
	OpCreate     Op = "create"
	OpStart      Op = "start"
	OpRestore    Op = "restore"
	OpCheckpoint Op = "checkpoint"
	OpDestroy    Op = "destroy"
	OpList       Op = "list"
	OpChannel    Op = "channel"
	OpWait       Op = "wait"
	OpStop       Op = "stop"
)

// Request is one message to the launcher. Which fields are set depends on Op;
// Validate knows.
type Request struct {
	Op     Op      `json:"op"`
	ID     string  `json:"id,omitempty"`
	Dir    string  `json:"dir,omitempty"`
	Force  bool    `json:"force,omitempty"`
	Create *Create `json:"create,omitempty"`
}

// Response is the launcher's answer; Failure alone is set when it failed.
type Response struct {
	Failure    *Failure    `json:"failure,omitempty"`
	Info       *Info       `json:"info,omitempty"`
	Containers []Container `json:"containers,omitempty"`
	Exit       *Exit       `json:"exit,omitempty"`
	// Pending answers OpWait when the container still runs after the
	// launcher's patience: ask again. It bounds how long a request of a
	// caller who is gone stays.
	Pending bool `json:"pending,omitempty"`
}

// Failure is an error on the wire.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// NewFailure turns err into its wire form.
func NewFailure(err error) *Failure {
	return &Failure{Code: errs.CodeOf(err).String(), Message: errs.Text(err)}
}

// Err returns the failure as an error with its code; a code this side does
// not know is Internal.
func (f *Failure) Err() error {
	if f == nil {
		return nil
	}
	for _, c := range errs.Codes() {
		if c.String() == f.Code {
			return errs.New(c, "%s", f.Message)
		}
	}
	return errs.New(errs.Internal, "%s", f.Message)
}

// Create asks for a container in state created: its sandbox process is there
// and waits, nothing of the guest runs yet. Start or Restore follow.
type Create struct {
	ID   string `json:"id"`
	Root Root   `json:"root"`
	// Argv is the guest's process 1. It must be the same for the source of a
	// checkpoint and for the containers restored from it, like Cwd.
	Argv     []string `json:"argv"`
	Env      []string `json:"env,omitempty"`
	Cwd      string   `json:"cwd,omitempty"`      // default "/"
	Hostname string   `json:"hostname,omitempty"` // ignored by Restore: gVisor keeps the saved one
	// DebugDir, when set, gets gVisor's debug logs of this container.
	DebugDir string `json:"debug_dir,omitempty"`
	// Files are the guest's descriptors: 0, 1 and 2 first (regular files or
	// /dev/null), then 4, 5 and so on. Descriptor 3 is always the channel.
	// Without files, standard input and output are /dev/null. The caller
	// keeps its own copies and closes them.
	Files []*os.File `json:"-"`
}

// Root is the container's root filesystem: exactly one of its fields. Both
// get a private writable layer in memory on top.
type Root struct {
	// EROFS is the path of an EROFS image without inline data. The last two
	// parts of the path name it: a checkpoint restores only on the same bytes
	// under the same name, and other bytes need another name.
	EROFS string    `json:"erofs,omitempty"`
	Host  *HostRoot `json:"host,omitempty"`
}

// HostRoot is a root made of folders of this machine. Dir is a folder with
// the mount points (and whatever else the guest is to see, like symlinks);
// the binds are mounted in it in the runtime's own mount namespace only, once
// for all containers with the same Dir.
type HostRoot struct {
	Dir   string `json:"dir"`
	Binds []Bind `json:"binds,omitempty"`
}

// Bind is one folder or file of the machine in a HostRoot. Target is a path
// inside Dir and must exist there, with the same kind as Source.
type Bind struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// Restore starts a created container from a checkpoint.
type Restore struct {
	ID       string
	ImageDir string
}

// Checkpoint saves a running container into Dir, which exists and is empty.
// The container goes on.
type Checkpoint struct {
	ID  string
	Dir string
}

// Info describes a launcher. Process ids are those of the namespace the
// holder was started in; 0 when not known.
type Info struct {
	Protocol    int    `json:"protocol"`
	Version     string `json:"version"`
	Arch        string `json:"arch"`
	HolderPID   int    `json:"holder_pid,omitempty"`
	LauncherPID int    `json:"launcher_pid,omitempty"`
	// Precompiled tells whether gVisor's system call filters were compiled
	// when the runtime was built, which makes a start about a tenth faster.
	Precompiled bool `json:"precompiled,omitempty"`
}

// Status is the state of a container.
type Status string

// The states of a container.
const (
	Created Status = "created"
	Running Status = "running"
	Stopped Status = "stopped"
	// Unknown is what a launcher's death left half done: such a container can
	// only be destroyed.
	Unknown Status = "unknown"
)

// Container is one entry of a list.
type Container struct {
	ID     string `json:"id"`
	Status Status `json:"status"`
	// PID is the sandbox process, GoferPID its file server (0 with an EROFS
	// root), in the namespace the holder was started in; 0 when not known.
	PID      int   `json:"pid,omitempty"`
	GoferPID int   `json:"gofer_pid,omitempty"`
	Exit     *Exit `json:"exit,omitempty"`
}

// Exit is how a container's process 1 ended.
type Exit struct {
	// Known is false when nobody was there to learn the status: the sandbox
	// ended while no launcher was running.
	Known  bool `json:"known"`
	Code   int  `json:"code"`             // exit code, or 128 + Signal
	Signal int  `json:"signal,omitempty"` // the signal that ended it, or 0
}
