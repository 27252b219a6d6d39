package forks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/home"
)

// floor is a bare runsc with a program that it saved: what brood stands on.
type floor struct {
	p      floorParams
	state  string
	bundle string
	image  string
}

type floorParams struct {
	runsc   string
	dir     string
	home    string // whose only image is used
	program []string
}

const floorSource = "bare"

// newFloor runs the program and saves it, with runsc's own commands.
func newFloor(ctx context.Context, p floorParams) (*floor, error) {
	f := &floor{p: p, state: filepath.Join(p.dir, "state"), bundle: filepath.Join(p.dir, "bundle"), image: filepath.Join(p.dir, "saved")}
	for _, d := range []string{f.state, filepath.Join(f.bundle, "empty"), f.image} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	images, err := filepath.Glob(filepath.Join(home.At(p.home).Images(), "*", "root.erofs"))
	if err != nil || len(images) != 1 {
		return nil, errs.New(errs.Internal, "%d images in the measurement's home, one is expected", len(images))
	}
	if err := f.writeBundle(images[0]); err != nil {
		return nil, err
	}
	if err := f.run(ctx, "run", "--detach", "--bundle", f.bundle, floorSource); err != nil {
		return nil, err
	}
	err = f.awaitReady(ctx)
	if err == nil {
		err = f.run(ctx, "checkpoint", "--leave-running", "--image-path", f.image, "--compression", "none", floorSource)
	}
	if err != nil {
		f.close(context.WithoutCancel(ctx))
		return nil, err
	}
	return f, nil
}

func (f *floor) writeBundle(image string) error {
	b, err := json.Marshal(map[string]any{
		"ociVersion": "1.1.0",
		"root":       map[string]any{"path": "empty"},
		"process": map[string]any{
			"args": f.p.program, "cwd": "/", "env": []string{"PATH=/"}, "user": map[string]any{"uid": 0, "gid": 0},
		},
		"annotations": map[string]string{
			"dev.gvisor.spec.rootfs.source": image, "dev.gvisor.spec.rootfs.type": "erofs", "dev.gvisor.spec.rootfs.overlay": "memory",
		},
		"linux": map[string]any{"namespaces": []map[string]string{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(f.bundle, "config.json"), b, 0o600)
}

// run runs a command of runsc. Its output goes to a file: a sandbox would hold
// a pipe open.
func (f *floor) run(ctx context.Context, args ...string) error {
	log, err := os.CreateTemp(f.p.dir, "log-")
	if err != nil {
		return err
	}
	defer func() { _ = log.Close(); _ = os.Remove(log.Name()) }() // a log of the measurement's own folder
	flags := []string{"--root", f.state, "--platform=systrap", "--network=none", "--ignore-cgroups", "--overlay2=root:memory", "--host-settings=ignore"}
	cmd := exec.CommandContext(ctx, f.p.runsc, append(flags, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		out, _ := os.ReadFile(log.Name())
		return errs.New(errs.Internal, "runsc %s: %w: %s", args[0], err, out)
	}
	return nil
}

func (f *floor) awaitReady(ctx context.Context) error {
	for {
		if err := f.run(ctx, "exec", floorSource, "/brood", "bench", "idle", "--check"); err == nil || ctx.Err() != nil {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func (f *floor) restoreAll(ctx context.Context, ids []string, parallel int) error {
	return errors.Join(life.Each(ctx, len(ids), parallel, func(ctx context.Context, i int) error {
		return f.run(ctx, "restore", "--detach", "--bundle", f.bundle, "--image-path", f.image, ids[i])
	})...)
}

func (f *floor) deleteAll(ctx context.Context, ids []string) error {
	return errors.Join(life.Each(ctx, len(ids), 4, func(ctx context.Context, i int) error { return f.run(ctx, "delete", "--force", ids[i]) })...)
}

// close removes whatever the floor still has; its folder goes with the
// measurement's.
func (f *floor) close(ctx context.Context) {
	states, _ := filepath.Glob(filepath.Join(f.state, "*.state"))
	ids := []string{floorSource}
	for _, s := range states {
		id, _, _ := strings.Cut(filepath.Base(s), "_sandbox:")
		if id != floorSource {
			ids = append(ids, id)
		}
	}
	_ = f.deleteAll(ctx, ids) // nothing depends on it any more
}

// idle watches sandboxes that have nothing to do and returns what one takes.
func idle(ctx context.Context, ids []string) (idleCost, error) {
	procs, err := sandboxProcesses(ids)
	if err != nil {
		return idleCost{}, err
	}
	var cost idleCost
	before := 0
	for _, p := range procs {
		before += ticks(p)
	}
	if err := pause(ctx, idleFor); err != nil {
		return cost, err
	}
	after := 0
	for _, p := range procs {
		after += ticks(p)
		cost.PSSKiB += pss(p)
	}
	cost.PSSKiB /= len(ids)
	// A tick is 10 ms on every Linux (USER_HZ).
	cost.CPUPercent = float64(after-before) / idleFor.Seconds() / float64(len(ids))
	return cost, nil
}

// sandboxProcesses finds the processes of sandboxes, with all they started.
func sandboxProcesses(ids []string) ([]int, error) {
	wanted := map[string]bool{}
	for _, i := range ids {
		wanted[i] = true
	}
	children := map[int][]int{}
	var roots []int
	found, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		pid, _ := strconv.Atoi(filepath.Base(p))
		args, _ := os.ReadFile(p + "/cmdline")
		f := strings.Split(strings.TrimRight(string(args), "\x00"), "\x00")
		if strings.HasPrefix(f[0], "runsc-") && wanted[f[len(f)-1]] {
			roots = append(roots, pid)
		}
		if s := statFields(pid); len(s) > 1 {
			parent, _ := strconv.Atoi(s[1])
			children[parent] = append(children[parent], pid)
		}
	}
	if len(roots) < len(ids) {
		return nil, errs.New(errs.Internal, "%d processes of %d sandboxes found", len(roots), len(ids))
	}
	all := []int{}
	for todo := roots; len(todo) > 0; todo = todo[1:] {
		all = append(all, todo[0])
		todo = append(todo, children[todo[0]]...)
	}
	return all, nil
}

// statFields are the fields of /proc/PID/stat after the program's name.
func statFields(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
}

// ticks is the processor time of a process.
func ticks(pid int) int {
	f := statFields(pid)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return user + system
}

// pss is the proportional memory of a process in KiB.
func pss(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	return 0
}
