package roster

import (
	"fmt"
	"slices"
	"strings"

	"brood/internal/base/id"
)

// Needs is what a machine must have to restore a checkpoint. Empty fields ask
// for nothing.
type Needs struct {
	Driver string `json:"driver,omitempty"`
	// Runtime must be there already; empty when it travels with the checkpoint.
	Runtime     string   `json:"runtime,omitempty"`
	CPUFeatures []string `json:"cpu_features,omitempty"`
	// Only is the one machine that can restore it: the checkpoint was made
	// from that machine's own root.
	Only id.Machine `json:"only,omitempty"`
}

// Missing says in a person's words what keeps the machine from restoring a
// checkpoint with these needs; empty when nothing does.
func (m *Machine) Missing(n Needs) string {
	switch {
	case n.Only != "" && n.Only != m.Name:
		return fmt.Sprintf("the checkpoint was made from the root of %s and works only there; use an image to fork it elsewhere", n.Only)
	case n.Driver != "" && !slices.Contains(m.Drivers, n.Driver):
		return fmt.Sprintf("%s has no driver %q", m.Name, n.Driver)
	case n.Runtime != "" && !slices.Contains(m.Runtimes, n.Runtime):
		return fmt.Sprintf("%s lacks the runtime %.12s", m.Name, n.Runtime)
	}
	var missing []string
	for _, f := range n.CPUFeatures {
		if !slices.Contains(m.CPUFeatures, f) {
			missing = append(missing, f)
		}
	}
	if len(missing) > 0 {
		return fmt.Sprintf("the CPU of %s lacks %s", m.Name, strings.Join(missing, ", "))
	}
	return ""
}

// Abilities is a text that is equal for machines that can restore the same
// checkpoints (Only apart), so that needs are checked once per kind of
// machine.
func (m *Machine) Abilities() string {
	var b strings.Builder
	for _, list := range [][]string{m.Drivers, m.Runtimes, m.CPUFeatures} {
		for _, s := range list {
			fmt.Fprintf(&b, "%d:%s", len(s), s)
		}
		b.WriteByte(';')
	}
	return b.String()
}
