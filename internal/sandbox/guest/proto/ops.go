package proto

import (
	"encoding/json"
	"time"
)

// Version is the newest version of the protocol; Hello agrees on one. Programs
// in old checkpoints speak the one they were made with. Since 2 chunked streams
// leave out zeros.
const Version = 2

// The operations.
const (
	OpHello        = "hello"
	OpPing         = "ping"
	OpStart        = "start"
	OpWaitMain     = "wait-main"
	OpExec         = "exec"
	OpAttach       = "attach"
	OpStdin        = "stdin"
	OpCloseStdin   = "close-stdin"
	OpResize       = "resize"
	OpSignal       = "signal"
	OpExecList     = "exec-list"
	OpExecWait     = "exec-wait"
	OpExecForget   = "exec-forget"
	OpFreeze       = "freeze"
	OpThaw         = "thaw"
	OpIdentity     = "identity"
	OpIdentityInfo = "identity-info"
	OpPut          = "put"
	OpGet          = "get"
	OpStat         = "stat"
	OpPs           = "ps"
	OpStop         = "stop"
)

// MainID stands for the main command where an exec's id is asked for a
// signal.
const MainID = "main"

// HelloArgs says which versions the host speaks.
type HelloArgs struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// HelloResult is what the guest is and in which state the host finds it.
type HelloResult struct {
	Version   int         `json:"version"`
	Epoch     uint64      `json:"epoch"`      // sessions since the guest's boot
	BootNanos int64       `json:"boot_nanos"` // wall clock at the guest's start
	NowNanos  int64       `json:"now_nanos"`
	Arch      string      `json:"arch"`
	Frozen    bool        `json:"frozen"`
	Started   bool        `json:"started"`
	MainPID   int         `json:"main_pid,omitempty"`
	MainExit  *ExitStatus `json:"main_exit,omitempty"`
	UUID      string      `json:"uuid,omitempty"` // of the identity it was last given
}

// PingResult carries the guest's clock.
type PingResult struct {
	NowNanos int64 `json:"now_nanos"`
}

// ExitStatus is how a program ended. Signal is a name such as SIGKILL when a
// signal ended it; Code is then 128 + its number, as shells say it.
type ExitStatus struct {
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
}

// Command is a program to run.
type Command struct {
	Argv []string `json:"argv"`
	Env  []string `json:"env,omitempty"` // K=V; PATH, HOME, USER are filled in when missing
	Cwd  string   `json:"cwd,omitempty"`
	User string   `json:"user,omitempty"` // name or uid, optionally :group; empty = the guest's own
}

// StartArgs starts the main command.
type StartArgs struct {
	Command
	LogLimit int64 `json:"log_limit,omitempty"` // bytes per log segment; 0 = logs.DefaultLimit
}

// StartResult names the started process.
type StartResult struct {
	PID int `json:"pid"`
}

// ExecArgs starts a program beside the main command.
type ExecArgs struct {
	ID string `json:"id"`
	Command
	Stdin  bool   `json:"stdin,omitempty"` // else /dev/null
	TTY    bool   `json:"tty,omitempty"`
	Cols   uint16 `json:"cols,omitempty"`
	Rows   uint16 `json:"rows,omitempty"`
	Attach bool   `json:"attach,omitempty"` // the stream goes on as Attach from the start
	// HangUp ends it when the host is there and nobody has attached for a
	// while; without, it runs on for itself.
	HangUp bool `json:"hang_up,omitempty"`
}

// AttachArgs continues an exec's output at offsets.
type AttachArgs struct {
	ID     string `json:"id"`
	Stdout uint64 `json:"stdout"`
	Stderr uint64 `json:"stderr"`
}

// AttachResult says where the output begins that follows, which is later than
// what was asked for when that is no longer kept, and how much input the
// program has been given.
type AttachResult struct {
	PID    int    `json:"pid"`
	Stdout uint64 `json:"stdout"`
	Stderr uint64 `json:"stderr"`
	Stdin  uint64 `json:"stdin"`
}

// ExecInfo is the state of an exec. Stdout and Stderr count the bytes the
// program wrote, Stdin those it was given.
type ExecInfo struct {
	ID       string      `json:"id"`
	PID      int         `json:"pid"`
	Argv     []string    `json:"argv,omitempty"`
	TTY      bool        `json:"tty,omitempty"`
	Attached bool        `json:"attached,omitempty"`
	Began    int64       `json:"began_ns,omitempty"` // by the sandbox's clock
	Stdin    uint64      `json:"stdin"`
	Stdout   uint64      `json:"stdout"`
	Stderr   uint64      `json:"stderr"`
	Exit     *ExitStatus `json:"exit,omitempty"`
}

// ExecListResult lists the execs in the order they were started.
type ExecListResult struct {
	Execs []ExecInfo `json:"execs"`
}

// StdinArgs announces Size bytes of input behind the header. Offset says
// where in the program's whole input they belong: bytes it already has are
// skipped, so that a write may be sent again; -1 appends.
type StdinArgs struct {
	ID     string `json:"id"`
	Offset int64  `json:"offset"`
	Size   int    `json:"size"`
}

// MaxStdin bounds one write to a program's input in bytes.
const MaxStdin = 1 << 20

// StdinResult says how much input the program has been given in all.
type StdinResult struct {
	Offset uint64 `json:"offset"`
}

// IDArgs names an exec.
type IDArgs struct {
	ID string `json:"id"`
}

// ResizeArgs sets a terminal's size.
type ResizeArgs struct {
	ID   string `json:"id"`
	Cols uint16 `json:"cols"`
	Rows uint16 `json:"rows"`
}

// SignalArgs sends a signal (SIGTERM, TERM or 15) to the foreground group of
// a terminal (to all of its session where that is not known: gVisor), else to
// the program's group. ID may be MainID.
type SignalArgs struct {
	ID     string `json:"id"`
	Signal string `json:"signal"`
}

// FreezeArgs stops all user processes. With Capture nobody but the host ever
// thaws them; without, they go on by themselves after ThawAfterMillis
// (0 = 30,000) when the host does not say so earlier.
type FreezeArgs struct {
	Capture         bool  `json:"capture,omitempty"`
	ThawAfterMillis int64 `json:"thaw_after_ms,omitempty"`
}

// FreezeResult counts what was stopped, and what had been stopped before and
// will stay so.
type FreezeResult struct {
	Stopped int `json:"stopped"`
	Already int `json:"already"`
}

// IdentityArgs is what makes a fork itself.
type IdentityArgs struct {
	Name           string          `json:"name"`
	Hostname       string          `json:"hostname"`
	Index          int             `json:"index"`
	Batch          string          `json:"batch"`
	UUID           string          `json:"uuid"`
	Inputs         json.RawMessage `json:"inputs,omitempty"`
	Token          string          `json:"token"`
	Env            []string        `json:"env,omitempty"` // for every program started from now on
	Entropy        []byte          `json:"entropy"`       // at least MinEntropy bytes
	MachineID      string          `json:"machine_id"`    // 32 hex digits
	ClockStepNanos int64           `json:"clock_step_ns,omitempty"`
	HookMillis     int64           `json:"hook_ms,omitempty"` // for all hooks together; 0 = 8,000
}

// MinEntropy is the least entropy of an identity in bytes: 256 bits, what a
// kernel's generator is seeded with.
const MinEntropy = 32

// Renewed is one thing that was renewed, read back from inside, or why not.
type Renewed struct {
	What  string `json:"what"`
	Value string `json:"value,omitempty"`
	Error string `json:"error,omitempty"` // set when it could not be renewed and need not be
}

// IdentityResult is the identity the guest has now.
type IdentityResult struct {
	Name     string    `json:"name"`
	Hostname string    `json:"hostname"`
	Index    int       `json:"index"`
	Batch    string    `json:"batch,omitempty"`
	UUID     string    `json:"uuid"`
	NowNanos int64     `json:"now_nanos"`
	Renewed  []Renewed `json:"renewed"`
}

// ForkFile is the content of /run/brood/fork.json.
type ForkFile struct {
	Name   string          `json:"name"`
	Index  int             `json:"index"`
	Batch  string          `json:"batch"`
	UUID   string          `json:"uuid"`
	Inputs json.RawMessage `json:"inputs"`
}

// PutArgs announces a tar stream, in chunks, to be unpacked below Dir.
type PutArgs struct {
	Dir     string `json:"dir"`
	MakeDir bool   `json:"make_dir,omitempty"`
	User    string `json:"user,omitempty"` // owner of what is made; empty = the guest's own
	// KeepOwner gives what is made the owners that the tar stream says.
	KeepOwner bool `json:"keep_owner,omitempty"`
}

// CopyResult counts what was packed or unpacked.
type CopyResult struct {
	Entries int   `json:"entries"`
	Bytes   int64 `json:"bytes"`
	Skipped int   `json:"skipped,omitempty"` // sockets, devices and the like
	// Names are the first of what was skipped.
	Names []string `json:"names,omitempty"`
}

// GetArgs asks for Path as a tar stream, in chunks, whose top entry is Name.
type GetArgs struct {
	Path     string `json:"path"`
	Name     string `json:"name"`
	NoFollow bool   `json:"no_follow,omitempty"` // a link is packed as that link
	Zeros    bool   `json:"zeros,omitempty"`     // the host reads streams that leave them out
}

// StatArgs asks about a path.
type StatArgs struct {
	Path     string `json:"path"`
	NoFollow bool   `json:"no_follow,omitempty"`
}

// StatResult describes a path. Mode is Go's fs.FileMode.
type StatResult struct {
	Exists  bool   `json:"exists"`
	Mode    uint32 `json:"mode,omitempty"`
	Size    int64  `json:"size,omitempty"`
	ModTime int64  `json:"mtime_ns,omitempty"`
	Link    string `json:"link,omitempty"`
	UID     int    `json:"uid"`
	GID     int    `json:"gid"`
}

// Process is one process of the sandbox, the guest's own included. State is
// the letter of proc(5), CPU what it has used since its start, Memory what it
// has resident, in bytes.
type Process struct {
	PID    int           `json:"pid"`
	PPID   int           `json:"ppid"`
	UID    int           `json:"uid"`
	State  string        `json:"state"`
	CPU    time.Duration `json:"cpu_ns,omitempty"`
	Memory uint64        `json:"memory,omitempty"`
	Argv   []string      `json:"argv"`
}

// PsResult lists the processes by pid.
type PsResult struct {
	Processes []Process `json:"processes"`
}

// StopArgs ends the sandbox: TERM to the main command's group, and after the
// grace KILL to everything.
type StopArgs struct {
	GraceMillis int64 `json:"grace_ms"`
}

// StopResult says how the main command ended, when one was started.
type StopResult struct {
	MainExit *ExitStatus `json:"main_exit,omitempty"`
}
