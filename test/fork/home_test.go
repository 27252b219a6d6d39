package fork_test

import (
	"os"
	"syscall"
	"testing"

	"brood/client"
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

// The same when no daemon was there to see it.
func TestHomeDeletedWithoutADaemonLeavesNothingRunning(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "sleep", "1000")
	d.Stop()
	if len(live.Census(d.Home)) == 0 {
		t.Fatal("the sandbox ended with its daemon")
	}
	if err := os.RemoveAll(d.Home); err != nil {
		t.Fatal(err)
	}
	live.Eventually(t, "nothing is left", func() bool { return len(live.Census(d.Home)) == 0 })
}

// A home that was moved keeps its sandboxes: they run on, and the next daemon
// there has them, with their state, and forks them.
func TestMovedHomeKeepsItsSandboxes(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "sleep", "1000")
	d.Output("src", "sh", "-c", "echo kept > /tmp/f")
	d.Client.Close()
	old := d.PID()
	if err := os.Rename(d.Home, d.Home+"2"); err != nil {
		t.Fatal(err)
	}
	d.Home += "2"
	live.Eventually(t, "its daemon has ended", func() bool { return syscall.Kill(old, 0) != nil })
	d.Run()
	if out := d.Output("src", "cat", "/tmp/f"); out != "kept" {
		t.Errorf("it has %q", out)
	}
	if _, err := d.Client.CreateCheckpoint(within(t), "src", "base", client.CheckpointOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Client.Fork(within(t), "base", "forked"); err != nil {
		t.Fatal(err)
	}
	if out := d.Output("forked", "cat", "/tmp/f"); out != "kept" {
		t.Errorf("its fork has %q", out)
	}
}
