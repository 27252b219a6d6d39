package daemon

import (
	"os"
	"path/filepath"

	"brood/internal/base/id"
	"brood/internal/home"
	"brood/internal/payload"
	"brood/internal/sandbox"
	"brood/internal/sandbox/driver/gvisor"
	"brood/internal/sandbox/driver/gvisor/imagecheck"
)

// filesCheck returns what looks whether a driver's capture is whole; nil for
// drivers that have no such thing.
func filesCheck(d sandbox.Driver) func(dir string) error {
	if d.Name() == gvisor.Name {
		return imagecheck.Check
	}
	return nil
}

// gvisorDriver is the driver of every daemon: our runtime, installed once.
func gvisorDriver(h *home.Home) (sandbox.Driver, error) {
	rt, _, err := payload.InstallRuntime(h)
	if err != nil {
		return nil, err
	}
	// Launchers write to it as long as they live, beyond this daemon.
	log, err := os.OpenFile(filepath.Join(h.Logs(), "runtime.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return gvisor.New(gvisor.Params{
		Home: h, Runtime: rt, Log: log,
		Path: func(rt id.Runtime) string { return payload.RuntimePath(h, rt) },
	}), nil
}
