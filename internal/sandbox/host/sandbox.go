package host

import (
	"path/filepath"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/id"
	"brood/internal/home"
	"brood/internal/sandbox"
	"brood/internal/sandbox/guest/proto"
)

// Sandbox is what is known of a sandbox. It is a copy: changing it changes
// nothing.
type Sandbox struct {
	ID       id.Sandbox    `json:"id"`
	Name     id.Name       `json:"name"`
	Driver   string        `json:"driver"`
	Runtime  id.Runtime    `json:"runtime"`
	State    sandbox.State `json:"state"`
	Reason   string        `json:"reason,omitempty"`    // why it stopped or failed
	ExitCode *int          `json:"exit_code,omitempty"` // of its command

	Image    string            `json:"image"` // as it was asked for
	Root     sandbox.Root      `json:"root"`
	Mounts   []Mount           `json:"mounts,omitempty"`
	Shape    sandbox.Shape     `json:"shape"`
	Command  proto.Command     `json:"command"` // empty argv: it only waits for execs
	Labels   map[string]string `json:"labels,omitempty"`
	Ports    []uint32          `json:"ports,omitempty"`
	Services map[string]uint32 `json:"services,omitempty"`
	Network  string            `json:"network"`
	Forkable bool              `json:"forkable"`

	CreatedAt   time.Time     `json:"created_at"`
	ExpiresAt   time.Time     `json:"expires_at,omitzero"`
	IdleTimeout time.Duration `json:"idle_timeout_ns,omitempty"`
	Ephemeral   bool          `json:"ephemeral,omitempty"`
	Owner       *Owner        `json:"owner,omitempty"`

	Origin      *Origin               `json:"origin,omitempty"`
	Identity    *proto.IdentityResult `json:"identity,omitempty"`
	ConfirmedAt time.Time             `json:"confirmed_at,omitzero"`
	Warnings    []string              `json:"warnings,omitempty"`
}

// Mount shows a folder of the machine inside a sandbox on the host image.
type Mount = sandbox.Bind

// Origin says what a fork was made from.
type Origin struct {
	Checkpoint id.Name       `json:"checkpoint"`
	Digest     digest.Digest `json:"digest"`
	Batch      id.Batch      `json:"batch,omitempty"`
	Index      int           `json:"index"`
	Token      uint64        `json:"token,omitempty"` // of the batch's attempt that made it
	UUID       string        `json:"uuid"`
}

// Owner is the process that an ephemeral sandbox dies with. The start time
// keeps a later process with the same number from being taken for it.
type Owner struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot, proc(5)
}

// record is a sandbox as it lies on disk: with the channel's secret.
type record struct {
	Sandbox
	Magic string `json:"magic"`
}

var schema = home.Schema{Kind: "sandbox", Format: 1}

// files are where a sandbox keeps what outlives its processes.
type files struct{ dir string }

func (h *Host) files(sb id.Sandbox) files {
	return files{dir: filepath.Join(h.p.Home.Sandboxes(), string(sb))}
}

func (f files) record() string      { return filepath.Join(f.dir, "sandbox.json") }
func (f files) diagnostics() string { return filepath.Join(f.dir, "guest.log") }
func (f files) logs() [2]string {
	return [2]string{filepath.Join(f.dir, "output-0.log"), filepath.Join(f.dir, "output-1.log")}
}
