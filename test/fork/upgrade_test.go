package fork_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brood/client"
	"brood/internal/base/id"
	"brood/internal/home"
	"brood/internal/payload"
	"brood/internal/sandbox"
	"brood/internal/sandbox/driver/gvisor"
	"brood/test/live"
)

// olderRuntime names the folder of another runtime for a daemon's process.
const olderRuntime = "BROOD_TEST_RUNTIME"

// olderDriver is gVisor by the runtime that olderRuntime names.
func olderDriver(h *home.Home) (sandbox.Driver, error) {
	b, err := os.ReadFile(filepath.Join(os.Getenv(olderRuntime), "brood-runtime.id"))
	if err != nil {
		return nil, err
	}
	rt := id.Runtime(strings.TrimSpace(string(b)))
	path := payload.RuntimePath(h, rt)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	program, err := os.ReadFile(filepath.Join(os.Getenv(olderRuntime), "brood-runtime"))
	if err == nil {
		err = os.WriteFile(path, program, 0o700)
	}
	return gvisor.New(gvisor.Params{Home: h, Runtime: rt, Path: func(rt id.Runtime) string { return payload.RuntimePath(h, rt) }}), err
}

// A brood that was rebuilt with another runtime goes on with what the older
// one made: its sandboxes run, its checkpoints fork.
func TestUpgradeBreaksNothing(t *testing.T) {
	older := t.TempDir()
	build := exec.Command("go", "run", "./build", "--salt", "an older brood", older)
	build.Dir = "../../runtime"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build another runtime: %v\n%s", err, out)
	}
	d := live.Start(t, live.Options{Driver: "older runtime", Env: []string{olderRuntime + "=" + older}})
	create(t, d, "src", "python3", "-u", "-c", counter)
	live.Eventually(t, "the counter counts", func() bool { _, code := d.Exec("src", "cat", "/tmp/n"); return code == 0 })
	if _, err := d.Client.CreateCheckpoint(within(t), "src", "base", client.CheckpointOptions{}); err != nil {
		t.Fatal(err)
	}
	before := count(t, d, "src")
	d.Stop()
	d.Upgrade(live.Options{})

	create(t, d, "new")
	if _, err := d.Client.Fork(within(t), "base", "forked"); err != nil {
		t.Fatal(err)
	}
	if n := count(t, d, "src"); n < before {
		t.Errorf("the source went from %d to %d", before, n)
	}
	if n := count(t, d, "forked"); n == 0 {
		t.Error("the fork began anew")
	}
	runtimes := map[string]string{}
	for _, name := range []string{"src", "forked", "new"} {
		info, err := d.Client.GetSandboxInfo(within(t), name)
		if err != nil {
			t.Fatal(err)
		}
		runtimes[name] = info.GetRuntimeHash()
	}
	if runtimes["src"] != runtimes["forked"] || runtimes["src"] == runtimes["new"] {
		t.Errorf("runtimes: %v", runtimes)
	}
	if _, err := d.Client.CreateCheckpoint(within(t), "forked", "second", client.CheckpointOptions{}); err != nil {
		t.Errorf("checkpoint on the older runtime: %v", err)
	}

	// When nothing needs the older runtime any more, it goes.
	for _, name := range []string{"src", "forked"} {
		if err := d.Client.DeleteSandbox(within(t), name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"base", "second"} {
		if _, err := d.Client.DeleteCheckpoint(within(t), name, false); err != nil {
			t.Fatal(err)
		}
	}
	d.Stop()
	d.Run()
	left, err := filepath.Glob(filepath.Join(d.Home, "runtimes", "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("runtimes that are left: %v %v", left, err)
	}
}
