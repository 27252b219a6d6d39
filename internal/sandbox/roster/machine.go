package roster

import (
	"slices"

	"brood/internal/base/digest"
	"brood/internal/base/id"
)

// Machine is one machine at the moment it was asked. The reserved values are
// counted ones (what sandboxes there were said to need), not measured ones.
// When the question comes from a batch, SandboxesUsed and the reserved values
// leave out what that batch itself has there.
type Machine struct {
	Name     id.Machine `json:"name"`
	Key      string     `json:"key,omitempty"` // hash of its public key, hex
	Online   bool       `json:"online"`
	Provides bool       `json:"provides,omitempty"` // takes forks of other machines

	Cores     int    `json:"cores"`
	MemoryMiB uint64 `json:"memory_mib"`
	// FreeMemoryMiB is what is really free; 0 when it was not measured.
	FreeMemoryMiB uint64 `json:"free_memory_mib,omitempty"`

	SandboxLimit  int `json:"sandbox_limit,omitempty"` // 0: no limit
	SandboxesUsed int `json:"sandboxes_used,omitempty"`
	// StartLimit is how many sandboxes start there at once, of all batches; 0: no limit.
	StartLimit int `json:"start_limit,omitempty"`

	ReservedCPUs      uint64 `json:"reserved_cpus,omitempty"`
	ReservedMemoryMiB uint64 `json:"reserved_memory_mib,omitempty"`

	Drivers     []string        `json:"drivers,omitempty"`
	Runtimes    []string        `json:"runtimes,omitempty"`
	CPUFeatures []string        `json:"cpu_features,omitempty"`
	Holds       []digest.Digest `json:"holds,omitempty"`
}

// Available reports whether the machine may be given forks at all: it is
// online and is this machine or one that provides.
func (m *Machine) Available() bool {
	return m.Online && (m.Provides || m.Name == id.Local)
}

// Slots returns how many more sandboxes the machine's own limit allows;
// most when it has no limit.
func (m *Machine) Slots(most int) int {
	if m.SandboxLimit <= 0 {
		return most
	}
	return min(most, m.SandboxLimit-min(m.SandboxesUsed, m.SandboxLimit))
}

// Load is the larger of reserved cpus by cores and reserved memory by memory.
// 1 is a machine that is wholly promised; cpus may go above it.
func (m *Machine) Load() float64 {
	return max(Share(m.ReservedCPUs, uint64(max(m.Cores, 1))), Share(m.ReservedMemoryMiB, m.MemoryMiB))
}

// Share is part/whole, with a machine that did not say its size counted as
// one of size 1: full at once, so that it is chosen last.
func Share(part, whole uint64) float64 {
	return float64(part) / float64(max(whole, 1))
}

// HoldsDigest reports whether the machine holds the checkpoint.
func (m *Machine) HoldsDigest(d digest.Digest) bool { return slices.Contains(m.Holds, d) }
