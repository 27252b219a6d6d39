package fork_test

import (
	"strings"
	"syscall"
	"testing"

	"brood/test/live"
)

// A daemon that somebody stopped is ended by who asks for its end, and its
// sandboxes run on.
func TestStoppedDaemonCanBeEnded(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "sleep", "1000")
	d.Output("src", "sh", "-c", "echo kept > /tmp/f")
	old := d.PID()
	if err := syscall.Kill(old, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	d.Client.Close()
	said := d.Brood(0, "daemon", "stop")
	if !strings.Contains(said, "stopped the daemon") {
		t.Errorf("%s", said)
	}
	live.Eventually(t, "it has ended", func() bool { return syscall.Kill(old, 0) != nil })
	d.Run()
	if out := d.Output("src", "cat", "/tmp/f"); out != "kept" {
		t.Errorf("it has %q", out)
	}
}
