package drivertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"brood/internal/base/id"
	"brood/internal/sandbox"
)

// Subject is a driver under test, with nothing running, and what the suite
// must know about it.
type Subject struct {
	Driver sandbox.Driver
	// Again makes one more driver on the same folders: what a daemon has after
	// a restart, or by mistake a second one.
	Again func() sandbox.Driver
	Root  sandbox.Root
	Probe string // where the probe lies inside

	// HalfMake leaves a sandbox as a daemon does that dies in the middle of
	// Start.
	HalfMake func(context.Context, id.Sandbox) error
	// Kill ends the processes of a sandbox from outside.
	Kill func(context.Context, id.Sandbox) error
	// Full returns an empty folder on a disk too small for a capture; nil or
	// "" when there is none, and then the subtest is skipped.
	Full func(testing.TB) string
	// HeapMiB is the memory that a program of the heap subtest takes.
	HeapMiB int
}

// Run runs the whole suite; with -short, only what is most of it.
func Run(t *testing.T, fresh func(testing.TB) Subject) {
	short := map[string]bool{"State": true, "FailedCapture": true, "Destroy": true, "Wait": true, "Restart": true}
	for _, part := range []struct {
		name string
		test func(*world)
	}{
		{"State", state},
		{"Heap", heap},
		{"CapturesInARow", capturesInARow},
		{"ForkOfAFork", forkOfAFork},
		{"FailedCapture", failedCapture},
		{"DamagedImage", damagedImage},
		{"Refusals", refusals},
		{"Destroy", destroy},
		{"DestroyDuring", destroyDuring},
		{"Wait", wait},
		{"Restart", restart},
		{"HalfMade", halfMade},
		{"TwoDrivers", twoDrivers},
		{"ManyAtOnce", manyAtOnce},
		{"Names", names},
		{"Cancel", cancelled},
	} {
		t.Run(part.name, func(t *testing.T) {
			if testing.Short() && !short[part.name] {
				t.Skip("SKIPPED: left out by -short")
			}
			part.test(newWorld(t, fresh(t)))
		})
	}
}

// RunState runs the part of the suite about what a fork goes on from: enough
// for one more kind of root.
func RunState(t *testing.T, fresh func(testing.TB) Subject) {
	t.Run("State", func(t *testing.T) { state(newWorld(t, fresh(t))) })
}

// Build builds the probe into dir, for this machine's kernel, and returns its
// path there.
func Build(dir string) (string, error) {
	out := filepath.Join(dir, "probe")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, "brood/internal/sandbox/drivertest/probe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", errors.Join(fmt.Errorf("build the probe: %w", err))
	}
	return out, nil
}
