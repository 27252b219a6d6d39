package fork_test

import (
	"math/rand/v2"
	"testing"
	"time"

	daemonv1 "brood/api/cua/daemon/v1"
	"brood/client"
	"brood/internal/base/errs"
	"brood/test/live"
)

// A daemon that is killed leaves running sandboxes running, and the next one
// has them, with their state.
func TestKilledDaemonsSandboxesAreAdopted(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "python3", "-u", "-c", counter)
	live.Eventually(t, "the counter counts", func() bool { _, code := d.Exec("src", "cat", "/tmp/n"); return code == 0 })
	before := count(t, d, "src")
	d.Kill()
	d.Run()
	if after := count(t, d, "src"); after < before {
		t.Errorf("the counter went from %d to %d", before, after)
	}
	sb, err := d.Client.GetSandbox(within(t), "src")
	if err != nil || sb.GetState() != daemonv1.SandboxState_SANDBOX_STATE_RUNNING {
		t.Errorf("%v %v", sb, err)
	}
}

// Killed at whatever moment of whatever it does, a daemon leaves nothing half
// made: what the next one lists works, and nothing else is there.
func TestKilledAtAnyMomentNothingIsHalfMade(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "sleep", "1000")
	if _, err := d.Client.CreateCheckpoint(within(t), "src", "base", client.CheckpointOptions{}); err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	steps := map[string]func(c *client.Client) error{
		"create": func(c *client.Client) error {
			_, err := c.CreateSandbox(within(t), createRequest("made", "sleep", "1000"), nil)
			return err
		},
		"checkpoint": func(c *client.Client) error {
			_, err := c.CreateCheckpoint(within(t), "src", "second", client.CheckpointOptions{})
			return err
		},
		"fork":   func(c *client.Client) error { _, err := c.Fork(within(t), "base", "forked"); return err },
		"delete": func(c *client.Client) error { return c.DeleteSandbox(within(t), "gone") },
	}
	for round := range 3 {
		for name, step := range steps {
			if name == "delete" {
				create(t, d, "gone")
			}
			limit := time.Duration(random.IntN(250)) * time.Millisecond
			d.KillDuring(limit, func(c *client.Client) { _ = step(c) })
			d.Run()
			settle(t, d, name, round)
		}
	}
	if out := d.Output("src", "echo", "alive"); out != "alive" {
		t.Errorf("the source says %q", out)
	}
}

// settle checks that whatever a killed step left is whole, and removes it.
func settle(t *testing.T, d *live.Daemon, step string, round int) {
	t.Helper()
	for _, name := range []string{"made", "forked", "gone"} {
		sb, err := d.Client.GetSandbox(within(t), name)
		if errs.Is(err, errs.NotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if sb.GetState() != daemonv1.SandboxState_SANDBOX_STATE_RUNNING {
			t.Errorf("%s killed in round %d: %s is %s: %s", step, round, name, sb.GetState(), sb.GetError())
		} else if out := d.Output(name, "uname", "-n"); out != name {
			t.Errorf("%s killed in round %d: %s calls itself %q", step, round, name, out)
		}
		if err := d.Client.DeleteSandbox(within(t), name); err != nil {
			t.Errorf("remove %s: %v", name, err)
		}
	}
	if _, err := d.Client.GetCheckpoint(within(t), "second"); err == nil {
		if _, err := d.Client.Fork(within(t), "second", "of-second"); err != nil {
			t.Errorf("a checkpoint that a killed daemon made does not fork: %v", err)
		} else if err := d.Client.DeleteSandbox(within(t), "of-second"); err != nil {
			t.Error(err)
		}
		if _, err := d.Client.DeleteCheckpoint(within(t), "second", false); err != nil {
			t.Error(err)
		}
	}
	if left := live.Sandboxes(d.Home); len(left) != 1 {
		t.Errorf("%s killed in round %d: runtime processes of %d sandboxes are left, only src's should be: %v", step, round, len(left), left)
	}
}
