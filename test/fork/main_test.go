package fork_test

import (
	"context"
	"testing"
	"time"

	broodv1 "brood/api/brood/v1"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/client"
	"brood/test/live"
)

func TestMain(m *testing.M) {
	live.Drivers["older runtime"] = olderDriver
	live.Drivers["failing restore"] = failingDriver
	live.Main(m)
}

// within is a context for a test's calls.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// create makes a sandbox of this machine's root.
func create(t testing.TB, d *live.Daemon, name string, argv ...string) *client.Sandbox {
	t.Helper()
	r, err := d.Client.CreateSandbox(within(t), &broodv1.CreateSandboxRequest{
		Create: &daemonv1.CreateSandboxRequest{Name: name, Image: "host", Command: argv},
	}, nil)
	if err != nil {
		t.Fatalf("create %s: %v\n%s", name, err, d.Tail())
	}
	return r.GetSandbox()
}

func createRequest(name string, argv ...string) *broodv1.CreateSandboxRequest {
	return &broodv1.CreateSandboxRequest{Create: &daemonv1.CreateSandboxRequest{Name: name, Image: "host", Command: argv}}
}
