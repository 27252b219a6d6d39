//go:build linux

package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"brood/internal/base/id"
	"brood/internal/home"
	"brood/internal/sandbox"
	"brood/internal/sandbox/driver/gvisor/launch"
	"brood/internal/sandbox/drivertest"
)

// noCtx is for what takes no time limit of its own.
var noCtx = context.Background()

// newHome returns a home of the test's own. When the test ends, no process or
// mount may be left that has to do with it.
func newHome(t testing.TB) *home.Home {
	t.Helper()
	dir, err := os.MkdirTemp("", "bgh-")
	if err != nil {
		t.Fatal(err)
	}
	h, err := home.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(logsOf(h))
		}
		for _, left := range census(dir) {
			t.Errorf("left behind: %s", left)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return h
}

// census lists the processes and mounts of this machine that have to do with
// a folder.
func census(dir string) []string {
	var all []string
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return []string{err.Error()}
	}
	for _, p := range procs {
		args, err := os.ReadFile(p)
		if err == nil && bytes.Contains(args, []byte(dir)) {
			all = append(all, p+": "+strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return append(all, err.Error())
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			all = append(all, "mount "+line)
		}
	}
	return all
}

// logsOf returns what a home's runtimes said.
func logsOf(h *home.Home) string {
	names, _ := filepath.Glob(h.Run() + "/*/*.log")
	var all strings.Builder
	for _, name := range names {
		b, err := os.ReadFile(name)
		fmt.Fprintf(&all, "%s (%v):\n%s\n", name, err, b[max(0, len(b)-4000):])
	}
	return all.String()
}

func newDriver(h *home.Home) *Driver {
	return New(Params{Home: h, Runtime: shared.runtime, Path: func(rt id.Runtime) string {
		if rt == shared.runtime {
			return shared.path
		}
		return filepath.Join(shared.dir, "no-such-runtime")
	}})
}

func newSubject(t testing.TB, root sandbox.Root, probe string) drivertest.Subject {
	h := newHome(t)
	d := newDriver(h)
	return drivertest.Subject{
		Driver: d, Again: func() sandbox.Driver { return newDriver(h) }, Root: root, Probe: probe, HeapMiB: 200,
		HalfMake: func(ctx context.Context, sb id.Sandbox) error {
			c, err := d.launcher(ctx, d.p.Runtime)
			if err != nil {
				return err
			}
			ch, err := c.Create(ctx, launch.Create{ID: string(sb), Root: rootOf(root), Hostname: "half", Argv: []string{GuestPath, "init"}})
			if err != nil {
				return err
			}
			return ch.Close()
		},
		Kill: func(ctx context.Context, sb id.Sandbox) error {
			one, err := d.container(ctx, sb)
			if err != nil {
				return err
			}
			return unix.Kill(one.PID, unix.SIGKILL)
		},
		Full: func(testing.TB) string { return shared.full },
	}
}

// container is a sandbox as the launcher sees it.
func (d *Driver) container(ctx context.Context, sb id.Sandbox) (launch.Container, error) {
	c, err := d.running(ctx, d.p.Runtime)
	if err != nil {
		return launch.Container{}, err
	}
	all, err := c.List(ctx)
	for _, one := range all {
		if one.ID == string(sb) {
			return one, nil
		}
	}
	return launch.Container{}, errors.Join(err, fmt.Errorf("no container %s", sb))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
