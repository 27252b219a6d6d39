// Package quiet keeps an idle sandbox from using the processor.
//
// On the systrap platform gVisor looks 2,500 times a second, in every sandbox
// and as long as it lives, whether its threads should spin while they wait for
// each other. Of one busy sandbox that makes system calls faster; of hundreds
// that mostly wait it takes some four hundredths of a core each. Here the same
// look is taken as often while there is something to see, and less and less
// often while there is not.
//
// What it looks at belongs to gVisor and is reached by name, with the types of
// the pinned version written down again; size_test.go holds them against the
// version that is linked.
package quiet

import (
	"context"
	"runtime/debug"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"brood/internal/base/life"

	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/hostarch"
	_ "gvisor.dev/gvisor/pkg/sentry/platform/systrap" // the package whose look is taken over
)

const (
	// often is gVisor's own period.
	often = 400 * time.Microsecond
	// seldom is how long a sandbox that wakes up does without spinning at
	// most; 20 looks a second are too few to measure.
	seldom = 50 * time.Millisecond
)

type buckets [80]atomicbitops.Uint64

type recorder struct{ stub, sentry buckets }

type state struct {
	_                  [2]buckets
	_                  [6]int
	_                  [hostarch.CacheLineSize]byte
	_                  atomicbitops.Bool
	_                  [hostarch.CacheLineSize]byte
	_                  atomicbitops.Bool
	_                  [hostarch.CacheLineSize]byte
	_                  atomicbitops.Uint32
	_                  [hostarch.CacheLineSize]byte
	usedStubFastPath   atomicbitops.Bool
	_                  [hostarch.CacheLineSize]byte
	usedSentryFastPath atomicbitops.Bool
	_                  [hostarch.CacheLineSize]byte
	curState           func(*state)
}

//go:linkname latencyMonitoring gvisor.dev/gvisor/pkg/sentry/platform/systrap.latencyMonitoring
var latencyMonitoring sync.Once

//go:linkname fastpath gvisor.dev/gvisor/pkg/sentry/platform/systrap.fastpath
var fastpath state

//go:linkname latencies gvisor.dev/gvisor/pkg/sentry/platform/systrap.latencies
var latencies recorder

//go:linkname fastPathContextLimit gvisor.dev/gvisor/pkg/sentry/platform/systrap.fastPathContextLimit
var fastPathContextLimit uint32

//go:linkname maxSysmsgThreads gvisor.dev/gvisor/pkg/sentry/platform/systrap.maxSysmsgThreads
var maxSysmsgThreads int

// Systrap takes the look over. It has to run before the platform is made, in
// the process that will be the sandbox.
func Systrap() {
	latencyMonitoring.Do(func() {
		life.NewGroup(context.Background()).Go("look", func(context.Context) error {
			look()
			return nil
		})
	})
}

// settled is how many idle looks in a row say that the sandbox has started:
// two seconds of them.
const settled = int(2 * time.Second / seldom)

// While a sandbox starts, garbage is collected when memory has grown to five
// times what is in use instead of twice: loading a saved kernel makes much of
// it in a moment, and to collect that was a seventh of a fork's processor time.
const (
	startingGC = 400
	steadyGC   = 100
	// starting is how long a sandbox is taken to start at most.
	starting = 10 * time.Second
)

// look decides about spinning as long as the sandbox lives. Once it has
// started, what the start took is given back: loading a saved kernel leaves
// megabytes of garbage, which an idle sandbox would keep for good.
func look() {
	debug.SetGCPercent(startingGC)
	began, steady := time.Now(), false
	period, seen, idle := often, uint64(0), 0
	for {
		time.Sleep(period)
		idle = idleLooks(idle, period)
		if !steady && (idle == settled || time.Since(began) > starting) {
			debug.SetGCPercent(steadyGC)
			steady = true
		}
		if idle == settled {
			debug.FreeOSMemory()
		}
		fastPathContextLimit = uint32(maxSysmsgThreads * 2)
		period = next(period, latencies.count() != seen)
		fastpath.curState(&fastpath)
		fastpath.usedStubFastPath.Store(false)
		fastpath.usedSentryFastPath.Store(false)
		seen = latencies.count() // the states reset it at their own time
	}
}

// idleLooks counts looks that came after the longest period; once it has
// reached settled it counts no more.
func idleLooks(n int, period time.Duration) int {
	switch {
	case n > settled:
		return n
	case n == settled:
		return n + 1
	case period < seldom:
		return 0
	}
	return n + 1
}

// next is how long to wait for the next look.
func next(period time.Duration, busy bool) time.Duration {
	if busy {
		return often
	}
	return min(2*period, seldom)
}

// count is how many switches between threads were recorded.
func (r *recorder) count() (n uint64) {
	for i := range r.stub {
		n += r.stub[i].Load() + r.sentry[i].Load()
	}
	return n
}
