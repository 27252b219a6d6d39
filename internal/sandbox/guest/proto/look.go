package proto

// The operations that look at a sandbox from inside, the one that leaves
// nothing to look at, and the one that keeps places from being written.
const (
	OpEnd     = "end"
	OpDial    = "dial"
	OpUsage   = "usage"
	OpProtect = "protect"
)

// ProtectArgs says what can be written, a place before those inside it.
type ProtectArgs struct {
	Places []Place `json:"places"`
}

// Place is a folder or file of the sandbox.
type Place struct {
	Path     string `json:"path"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// DialArgs asks for a connection to a port of the sandbox's own loopback. The
// stream carries the connection's bytes after the reply.
type DialArgs struct {
	Port uint16 `json:"port"`
}

// UsageResult says what the sandbox uses, in bytes: memory of its programs and
// of what they wrote to the disk, which is kept in memory too.
type UsageResult struct {
	Memory uint64 `json:"memory"`
}
