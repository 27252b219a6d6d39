package fork_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brood/test/live"
)

// A daemon that comes and goes leaves nothing to read in the runtime's log.
func TestCallersThatLeaveAreNotLogged(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "sleep", "1000")
	d.Kill() // while it waits for the sandbox's end
	d.Run()
	if err := d.Client.DeleteSandbox(within(t), "src"); err != nil {
		t.Fatal(err)
	}
	create(t, d, "next", "true")
	d.Stop()
	b, err := os.ReadFile(filepath.Join(d.Home, "logs", "runtime.log"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "connection:") {
		t.Errorf("runtime.log:\n%s", b)
	}
}
