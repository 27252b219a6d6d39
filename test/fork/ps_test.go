package fork_test

import (
	"testing"

	"brood/test/live"
)

// The processes of a sandbox are listed with what they use.
func TestProcessesSayWhatTheyUse(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "python3", "-c", "x = bytearray(30 << 20)\nwhile True: pass")
	live.Eventually(t, "memory and processor time are told", func() bool {
		all, err := d.Client.ListProcesses(within(t), "src")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			if len(p.GetArgv()) > 0 && p.GetArgv()[0] == "python3" && p.GetResidentBytes() > 20<<20 && p.GetCpuTime().AsDuration() > 0 {
				return true
			}
		}
		return false
	})
}
