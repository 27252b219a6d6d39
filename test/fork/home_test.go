package fork_test

import (
	"os"
	"syscall"
	"testing"

	"brood/test/live"
)

// A daemon whose home was deleted while it ran ends, and so does all that it
// started.
func TestDeletedHomeLeavesNothingRunning(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "sleep", "1000")
	d.Client.Close()
	live.Eventually(t, "the home is deleted", func() bool { return os.RemoveAll(d.Home) == nil })
	live.Eventually(t, "nothing is left", func() bool { return len(live.Census(d.Home)) == 0 && syscall.Kill(d.PID(), 0) != nil })
}
