package fork_test

import (
	"fmt"
	"strconv"
	"testing"

	"brood/client"
	"brood/test/live"
)

// counter counts in memory and writes the number to a file whenever it
// changes, so that any exec can read it.
const counter = `
import time
n = 0
while True:
    n += 1
    with open('/tmp/n.new', 'w') as f: f.write(str(n))
    import os; os.rename('/tmp/n.new', '/tmp/n')
    time.sleep(0.01)
`

func count(t testing.TB, d *live.Daemon, name string) int {
	t.Helper()
	n, err := strconv.Atoi(d.Output(name, "cat", "/tmp/n"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestForkGoesOnFromTheSameState(t *testing.T) {
	d := live.Start(t, live.Options{})
	create(t, d, "src", "python3", "-u", "-c", counter)
	live.Eventually(t, "the counter counts", func() bool {
		out, code := d.Exec("src", "cat", "/tmp/n")
		return code == 0 && out != ""
	})
	before := count(t, d, "src")
	cp, err := d.Client.CreateCheckpoint(within(t), "src", "base", client.CheckpointOptions{})
	if err != nil {
		t.Fatal(err)
	}
	after := count(t, d, "src")
	t.Logf("paused %d ms, %d bytes, source went from %d to %d", cp.GetPausedMs(), cp.GetCheckpoint().GetSizeBytes(), before, after)
	b, err := d.Client.ForkMany(within(t), "base", 4, &client.ForkManyOptions{NamePrefix: "f"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Collect(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if r.Summary.GetOk() != 4 || len(r.Items) != 4 {
		t.Fatalf("%v %v", r.Summary, r.Items)
	}
	for i, item := range r.Items {
		name := fmt.Sprintf("f-%d", i)
		if item.GetName() != name {
			t.Errorf("item %d is called %s", i, item.GetName())
		}
		if got := d.Output(name, "uname", "-n"); got != name {
			t.Errorf("%s calls itself %s", name, got)
		}
		if n := count(t, d, name); n < before {
			t.Errorf("%s counts from %d, the source was at %d", name, n, before)
		}
	}
	if n := count(t, d, "src"); n < after {
		t.Errorf("the source went back to %d", n)
	}
}
