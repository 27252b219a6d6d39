//go:build !linux

package worker

import (
	"os"

	"brood/internal/base/life"
	"brood/internal/run"
)

// newBackend: nothing here counts process trees, so that the system's account
// of the processes that were waited for is all there is.
func newBackend(*life.Group, bool) backend { return plain{} }

type plain struct{}

func (plain) site() site { return plain{} }
func (plain) close(bool) {}

func (plain) start(c command) (*os.Process, error) { return os.StartProcess(c.path, c.argv, c.attr()) }
func (plain) members() []int                       { return nil }
func (plain) sample()                              {}
func (plain) release()                             {}

func (plain) usage(u rusage) run.Usage {
	return run.Usage{CPU: u.cpu, PeakMemory: u.peak, Sampled: true}
}
