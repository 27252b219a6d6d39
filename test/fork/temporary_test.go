package fork_test

import (
	"testing"

	"brood/client"
	"brood/test/live"
)

func checkpoints(t testing.TB, d *live.Daemon) int {
	t.Helper()
	all, err := d.Client.ListCheckpoints(within(t), true)
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// A sandbox that is forked is saved once, and that checkpoint goes with the
// last of its forks, across restarts of the daemon (F42).
func TestCheckpointOfABatchGoesWithItsLastFork(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "sleep", "1000")
	b, err := d.Client.ForkMany(within(t), "src", 3, &client.ForkManyOptions{NamePrefix: "f"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := b.Collect(within(t)); err != nil || r.Summary.GetOk() != 3 {
		t.Fatalf("%v %v", r, err)
	}
	if n := checkpoints(t, d); n != 1 {
		t.Fatalf("%d checkpoints after the batch", n)
	}
	d.Kill()
	d.Run()
	for i, name := range []string{"f-0", "f-1", "f-2"} {
		if n := checkpoints(t, d); n != 1 {
			t.Errorf("%d checkpoints with %d forks left", n, 3-i)
		}
		if err := d.Client.DeleteSandbox(within(t), name); err != nil {
			t.Fatal(err)
		}
	}
	if n := checkpoints(t, d); n != 0 {
		t.Errorf("%d checkpoints without a fork", n)
	}
	if out := d.Output("src", "echo", "still here"); out != "still here" {
		t.Errorf("source says %q", out)
	}
}
