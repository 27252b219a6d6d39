package host

import (
	"runtime"

	"brood/internal/base/id"
	"brood/internal/sandbox/checkpoint"
	"brood/internal/sandbox/roster"
)

// Counted values of a sandbox that does not say what it needs (F44).
const (
	countedCPUs      = 1
	countedMemoryMiB = 2048
)

// Machine is what checkpoints are checked against here.
func (h *Host) Machine() checkpoint.Machine { return h.p.Machine }

// Capacity is this machine as a batch sees it: what its sandboxes are counted
// as, those of the batch itself left out.
func (h *Host) Capacity(without id.Batch) roster.Machine {
	total, free := memory()
	m := roster.Machine{
		Name: id.Local, Online: true, Cores: runtime.NumCPU(),
		MemoryMiB: total, FreeMemoryMiB: free,
		SandboxLimit: h.p.MaxSandboxes, StartLimit: cap(h.starting),
		Drivers: []string{h.p.Driver.Name()}, Runtimes: []string{string(h.p.Driver.Runtime())},
	}
	for _, sb := range h.List() {
		if without != "" && sb.Origin != nil && sb.Origin.Batch == without {
			continue
		}
		m.SandboxesUsed++
		m.ReservedCPUs += orDefault(uint64(sb.Shape.CPUs), countedCPUs)
		m.ReservedMemoryMiB += orDefault(sb.Shape.MemoryMiB, countedMemoryMiB)
	}
	for _, cp := range h.p.Checkpoints.List() {
		m.Holds = append(m.Holds, cp.Digest)
	}
	return m
}

func orDefault(v, d uint64) uint64 {
	if v == 0 {
		return d
	}
	return v
}
