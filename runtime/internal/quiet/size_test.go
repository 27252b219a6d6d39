package quiet

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

// The types written down here are as large as the variables of the gVisor that
// is linked: another version with other types fails this.
func TestTypesAreThoseOfThePinnedVersion(t *testing.T) {
	program := filepath.Join(t.TempDir(), "runtime")
	if out, err := exec.Command("go", "build", "-o", program, "brood/runtime/cmd/brood-runtime").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	out, err := exec.Command("go", "tool", "nm", "-size", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	const systrap = "gvisor.dev/gvisor/pkg/sentry/platform/systrap."
	want := map[string]uintptr{
		systrap + "fastpath": unsafe.Sizeof(fastpath), systrap + "latencies": unsafe.Sizeof(latencies),
		systrap + "latencyMonitoring": unsafe.Sizeof(latencyMonitoring), systrap + "fastPathContextLimit": unsafe.Sizeof(fastPathContextLimit),
		systrap + "maxSysmsgThreads": unsafe.Sizeof(maxSysmsgThreads),
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		size, ours := want[f[3]]
		if got, err := strconv.Atoi(f[1]); ours && (err != nil || got != int(size)) {
			t.Errorf("%s has %s bytes, here it has %d", f[3], f[1], size)
		}
		delete(want, f[3])
	}
	for name := range want {
		t.Errorf("the linked gVisor has no %s", name)
	}
}

func TestLooksSeldomWhenIdleAndOftenAgain(t *testing.T) {
	period := often
	for range 20 {
		if later := next(period, false); later < period || later > seldom {
			t.Fatalf("%s after %s", later, period)
		} else {
			period = later
		}
	}
	if period != seldom || next(period, true) != often {
		t.Errorf("idle %s, busy %s", period, next(period, true))
	}
}

func TestSettlesOnce(t *testing.T) {
	n, times := 0, 0
	for i := range 10 * settled {
		period := seldom
		if i == settled/2 {
			period = often // woken up on the way: the count begins anew
		}
		if n = idleLooks(n, period); n == settled {
			times++
		}
	}
	if times != 1 {
		t.Errorf("settled %d times", times)
	}
}
