// Package quiet keeps an idle sandbox from using the processor.
//
// On the systrap platform gVisor looks 2,500 times a second, in every sandbox
// and as long as it lives, whether threads should spin while they wait for each
// other. Of one sandbox with a machine to itself that makes system calls
// faster. Of hundreds that mostly wait it takes several hundredths of a core
// each, and the spinning takes the rest. Spinning is off until that look
// switches it on, so that without the look it stays off.
package quiet

import (
	"sync"
	_ "unsafe" // for go:linkname

	_ "gvisor.dev/gvisor/pkg/sentry/platform/systrap" // the package whose look is left out
)

//go:linkname latencyMonitoring gvisor.dev/gvisor/pkg/sentry/platform/systrap.latencyMonitoring
var latencyMonitoring sync.Once

// Systrap keeps the platform from starting the look. It has to run before the
// platform is made, in the process that will be the sandbox.
func Systrap() { latencyMonitoring.Do(func() {}) }
