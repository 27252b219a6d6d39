package forks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	broodv1 "brood/api/brood/v1"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/edge/cli"
)

// forkReport is what a measurement of forks found.
type forkReport struct {
	Bench string `json:"bench"`
	forkBench
	CPUs         int      `json:"cpus"`
	OursMS       []int64  `json:"ours_ms"`  // a batch, from the call to its summary
	FloorMS      []int64  `json:"floor_ms"` // as many restores
	Ratio        float64  `json:"ratio"`    // of the medians
	Ours         idleCost `json:"ours_idle"`
	Floor        idleCost `json:"floor_idle"`
	MemoryRatio  float64  `json:"memory_ratio"`
	CapturesMS   []uint64 `json:"captures_ms"`
	CaptureRatio float64  `json:"captures_p90_over_p50"`
	PausedMS     uint64   `json:"paused_ms_median"`
}

// idleCost is what one idle sandbox takes.
type idleCost struct {
	PSSKiB     int     `json:"pss_kib"`
	CPUPercent float64 `json:"cpu_percent"` // of one processor
}

const (
	benchSource, benchCheckpoint, benchPrefix = "bench", "bench", "b"
	// idleFor is how long idle sandboxes are watched.
	idleFor = 5 * time.Second
	// capturesInARow is how many checkpoints of one source are made (F25).
	capturesInARow = 10
)

// benchFork measures in a home of its own.
func (a *app) benchFork(ctx context.Context, b forkBench) (err error) {
	if os.Geteuid() != 0 {
		return errs.New(errs.Unsupported, "a bare runsc restores for root only: run the measurement as root")
	}
	if _, err := os.Stat(b.Runsc); err != nil {
		return errs.New(errs.NotFound, "no bare runsc: build it with `make bench`, or name one with --runsc (%w)", err)
	}
	dir, err := os.MkdirTemp("", "brood-bench-")
	if err != nil {
		return err
	}
	own := *a
	own.Home, own.Err = filepath.Join(dir, "home"), io.Discard
	c, err := own.dial(ctx)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { err = errors.Join(err, own.undoDemo(ctx, c, dir)) }()
	r := forkReport{Bench: "fork", forkBench: b, CPUs: runtime.NumCPU()}
	if err := own.measureForks(ctx, c, dir, &r); err != nil {
		return err
	}
	if a.JSON {
		return a.Value(r)
	}
	a.tellForks(r)
	return nil
}

func (a *app) measureForks(ctx context.Context, c *client.Client, dir string, r *forkReport) error {
	image, err := benchImage(dir)
	if err != nil {
		return err
	}
	a.Tell("making the image, and a checkpoint of the same program with both")
	program := []string{"/brood", "bench", "idle", "--heap", fmt.Sprint(r.HeapMiB)}
	if err := benchSandbox(ctx, c, image, program); err != nil {
		return err
	}
	if err := captures(ctx, c, r); err != nil {
		return err
	}
	f, err := newFloor(ctx, floorParams{runsc: r.Runsc, dir: filepath.Join(dir, "floor"), home: a.Home, program: program})
	if err != nil {
		return err
	}
	defer f.close(context.WithoutCancel(ctx))
	for round := range r.Rounds {
		last := round == r.Rounds-1
		turns := []func() error{
			func() error { return a.roundOurs(ctx, c, r, last) },
			func() error { return a.roundFloor(ctx, f, r, last) },
		}
		if round%2 == 1 {
			slices.Reverse(turns)
		}
		for _, turn := range turns {
			if err := turn(); err != nil {
				return err
			}
		}
		a.Tell("round %d: %d forks in %d ms, %d bare restores in %d ms", round+1, r.Count, r.OursMS[round], r.Count, r.FloorMS[round])
	}
	r.Ratio = float64(cli.Median(r.OursMS)) / float64(cli.Median(r.FloorMS))
	r.MemoryRatio = float64(r.Ours.PSSKiB) / float64(max(1, r.Floor.PSSKiB))
	return nil
}

// benchImage is a folder with this program and nothing else.
func benchImage(dir string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	image := filepath.Join(dir, "image")
	if err := os.Mkdir(image, 0o755); err != nil {
		return "", err
	}
	from, err := os.Open(exe)
	if err != nil {
		return "", err
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(image, "brood"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, from)
	return image, errors.Join(err, to.Close())
}

func benchSandbox(ctx context.Context, c *client.Client, image string, program []string) error {
	_, err := c.CreateSandbox(ctx, &broodv1.CreateSandboxRequest{
		Create:          &daemonv1.CreateSandboxRequest{Name: benchSource, Image: image, Command: program, ReadyTimeout: durationpb.New(2 * time.Minute)},
		WaitForCommands: []*broodv1.CommandProbe{{Argv: []string{"/brood", "bench", "idle", "--check"}}},
	}, nil)
	return err
}

// captures makes checkpoints in a row; the last one is forked.
func captures(ctx context.Context, c *client.Client, r *forkReport) error {
	var paused []uint64
	for range capturesInARow {
		cp, err := c.CreateCheckpoint(ctx, benchSource, benchCheckpoint, client.CheckpointOptions{Replace: true})
		if err != nil {
			return err
		}
		r.CapturesMS = append(r.CapturesMS, cp.GetElapsedMs())
		paused = append(paused, cp.GetPausedMs())
	}
	sorted := slices.Sorted(slices.Values(r.CapturesMS))
	r.CaptureRatio = float64(sorted[len(sorted)*9/10]) / float64(max(1, sorted[len(sorted)/2]))
	r.PausedMS = cli.Median(paused)
	return nil
}

// roundOurs forks once; in the last round the idle forks are looked at.
func (a *app) roundOurs(ctx context.Context, c *client.Client, r *forkReport, look bool) error {
	began := time.Now()
	b, err := c.ForkMany(ctx, benchCheckpoint, uint32(r.Count), &client.ForkManyOptions{NamePrefix: benchPrefix, MaxParallelPerHost: uint32(r.Parallel)})
	if err != nil {
		return err
	}
	defer b.Close()
	all, err := b.Collect(ctx)
	if err != nil {
		return err
	}
	r.OursMS = append(r.OursMS, time.Since(began).Milliseconds())
	if n := all.Summary.GetFailed(); n > 0 {
		return errs.New(errs.FailedPrecondition, "%d of %d forks failed", n, r.Count)
	}
	if look {
		var ids []string
		for _, i := range all.Items {
			sb, err := c.GetSandbox(ctx, i.GetName())
			if err != nil {
				return err
			}
			ids = append(ids, sb.GetProviderDetails()["uid"])
		}
		if r.Ours, err = idle(ctx, ids); err != nil {
			return err
		}
	}
	for _, i := range all.Items {
		if err := c.DeleteSandbox(ctx, i.GetName()); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) roundFloor(ctx context.Context, f *floor, r *forkReport, look bool) error {
	ids := make([]string, r.Count)
	for i := range ids {
		ids[i] = fmt.Sprintf("bare-%d-%04d", len(r.FloorMS), i) // no id is another's beginning
	}
	began := time.Now()
	if err := f.restoreAll(ctx, ids, r.Parallel); err != nil {
		return err
	}
	r.FloorMS = append(r.FloorMS, time.Since(began).Milliseconds())
	if look {
		var err error
		if r.Floor, err = idle(ctx, ids); err != nil {
			return err
		}
	}
	return f.deleteAll(ctx, ids)
}

func (a *app) tellForks(r forkReport) {
	a.Tell("\n%-28s %12s %12s %8s", "", "brood", "bare runsc", "ratio")
	a.Tell("%-28s %9d ms %9d ms %8.2f", fmt.Sprintf("%d forks, %d at once, median", r.Count, r.Parallel), cli.Median(r.OursMS), cli.Median(r.FloorMS), r.Ratio)
	a.Tell("%-28s %8.1f MiB %8.1f MiB %8.2f", "memory of an idle one (PSS)", float64(r.Ours.PSSKiB)/1024, float64(r.Floor.PSSKiB)/1024, r.MemoryRatio)
	a.Tell("%-28s %10.2f %% %10.2f %%", "processor of an idle one", r.Ours.CPUPercent, r.Floor.CPUPercent)
	a.Tell("%-28s %9d ms, source stood still %d ms; p90/p50 of %d in a row %.2f", "a checkpoint, median", cli.Median(r.CapturesMS), r.PausedMS, len(r.CapturesMS), r.CaptureRatio)
}
