package proto

// The operations that look at a sandbox from inside, and the one that leaves
// nothing to look at.
const (
	OpEnd   = "end"
	OpDial  = "dial"
	OpUsage = "usage"
)

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
