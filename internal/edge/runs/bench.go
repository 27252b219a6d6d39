package runs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"brood/internal/base/errs"
	"brood/internal/edge/cli"
)

// runBench is what a measurement of runs is asked to do.
type runBench struct {
	Turbo  string   `json:"turbo"`
	Rounds int      `json:"rounds"`
	Tasks  int      `json:"tasks"`
	Many   int      `json:"many"`
	Only   []string `json:"-"`
	Keep   string   `json:"-"`
}

// The measurements.
const (
	benchWarm, benchCold, benchMany, benchLayers = "warm", "cold", "many", "layers"
)

// runReport is what a measurement of runs found. Ratio is that of the warm run,
// or of the first measurement that was made.
type runReport struct {
	Bench string `json:"bench"`
	runBench
	TurboVersion string     `json:"turbo_version"`
	CPUs         int        `json:"cpus"`
	Runs         []*pairing `json:"runs"`
	Ratio        float64    `json:"ratio"`
}

// pairing is brood and turbo at the same thing, in turns.
type pairing struct {
	Name  string  `json:"name"`
	Tasks int     `json:"tasks"`
	Brood arm     `json:"brood"`
	Turbo arm     `json:"turbo"`
	Bare  *arm    `json:"bare,omitempty"` // the commands alone
	Ratio float64 `json:"ratio"`          // of the medians
	// OverheadMS is what a task costs more than its bare command.
	OverheadMS      *float64 `json:"overhead_ms_per_task,omitempty"`
	TurboOverheadMS *float64 `json:"turbo_overhead_ms_per_task,omitempty"`
}

// arm is the one side of a pairing.
type arm struct {
	MS     []int64 `json:"ms"`
	Median int64   `json:"median_ms"`
	// PeakMiB is the most memory that one process of its tree had, CPUMS the
	// time on processors of the whole tree; the medians.
	PeakMiB int64 `json:"peak_mib"`
	CPUMS   int64 `json:"cpu_ms"`

	peaks, cpus []int64
}

func newBench(a *app) *cobra.Command {
	var b runBench
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Runs beside turbo's, of the same workspaces",
		Long: `Run generated workspaces with brood and with turbo in turns, and print the ratio of
the medians:

  warm    tiny tasks, everything cached
  cold    the same, nothing cached, beside the bare commands
  many    ten thousand tasks, everything cached
  layers  1,000 packages with 3 tasks each in 100 layers, everything cached; then
          its graph alone (--graph), its keys too (--dry=json), and its first run,
          with nothing cached, once

Both find the workspace as they left it, write to the same disk, and run as many
tasks at once as there are cores. turbo gets a stand-in for npm that only does what
the tasks do: npm's own start, which brood spares, takes many times as long as
either, and is no part of the measurement. turbo itself is started without node
where its package has a program of its own.`,
		Example: "  brood bench run\n  brood bench run --only warm,cold --rounds 9 --json",
		Args:    cli.Takes(0, 0),
		RunE: cli.Interruptible(func(ctx context.Context, _ []string) error {
			if b.Rounds < 1 || b.Tasks < 1 || b.Many < 1 {
				return errs.New(errs.InvalidArgument, "--rounds, --tasks and --many are at least 1")
			}
			for _, name := range b.Only {
				if !slices.Contains([]string{benchWarm, benchCold, benchMany, benchLayers}, name) {
					return errs.New(errs.InvalidArgument, "--only %s: the measurements are warm, cold, many and layers", name)
				}
			}
			return a.benchRun(ctx, b)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&b.Turbo, "turbo", "", "turbo's `path` (default: node_modules/.bin/turbo here or above, else of this repository's tests, else in PATH)")
	flags.IntVar(&b.Rounds, "rounds", 5, "rounds of each")
	flags.IntVar(&b.Tasks, "tasks", 300, "tasks of warm and cold")
	flags.IntVar(&b.Many, "many", 10_000, "tasks of many")
	flags.StringSliceVar(&b.Only, "only", nil, "only these `measurements` (default all)")
	flags.StringVar(&b.Keep, "keep", "", "work in this `folder` and keep it (default: one that is removed)")
	return cmd
}

// benchRun measures in folders and a home of its own.
func (a *app) benchRun(ctx context.Context, b runBench) (err error) {
	if b.Turbo, err = findTurbo(b.Turbo); err != nil {
		return err
	}
	dir := b.Keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "brood-bench-run-"); err != nil {
			return err
		}
		defer func() {
			if removeErr := os.RemoveAll(dir); err == nil {
				err = removeErr
			}
		}()
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	exe, err := cli.Program()
	if err != nil {
		return err
	}
	r := &runReport{Bench: "run", runBench: b, CPUs: runtime.GOMAXPROCS(0)}
	w := &benchWorld{app: a, dir: dir, brood: exe, report: r}
	if r.TurboVersion, err = w.turboVersion(ctx); err != nil {
		return err
	}
	for _, m := range []struct {
		name string
		run  func(context.Context) error
	}{{benchWarm, w.warm}, {benchCold, w.cold}, {benchMany, w.many}, {benchLayers, w.layers}} {
		if len(b.Only) > 0 && !slices.Contains(b.Only, m.name) {
			continue
		}
		if err := m.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	r.Ratio = r.Runs[0].Ratio
	if a.JSON {
		return a.Value(r)
	}
	return nil
}

// findTurbo looks for turbo's program.
func findTurbo(said string) (string, error) {
	if said != "" {
		path, err := filepath.Abs(said)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(path); err != nil {
			return "", errs.New(errs.NotFound, "no turbo: %w", err)
		}
		return native(path), nil
	}
	var places []string
	if at, err := os.Getwd(); err == nil {
		for {
			places = append(places, filepath.Join(at, "node_modules"), filepath.Join(at, ".cache", "node", "node_modules"))
			up := filepath.Dir(at)
			if up == at {
				break
			}
			at = up
		}
	}
	places = append(places, filepath.Join(cli.BesideMe(".."), ".cache", "node", "node_modules"))
	for _, modules := range places {
		for _, name := range []string{nativeOf(modules), filepath.Join(modules, ".bin", "turbo")} {
			if _, err := os.Stat(name); err == nil {
				return name, nil
			}
		}
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if name := filepath.Join(dir, "turbo"); dir != "" {
			if _, err := os.Stat(name); err == nil {
				return native(name), nil
			}
		}
	}
	return "", errs.New(errs.NotFound, "turbo is not found: install it (npm install turbo), or name it with --turbo")
}

// native is the program behind node_modules/.bin/turbo, where there is one:
// what node adds to its start is not turbo's.
func native(path string) string {
	if dir, ok := strings.CutSuffix(path, filepath.Join(".bin", "turbo")); ok {
		if name := nativeOf(dir); exists(name) {
			return name
		}
	}
	return path
}

func nativeOf(modules string) string {
	arch := map[string]string{"amd64": "64", "arm64": "arm64"}[runtime.GOARCH]
	return filepath.Join(modules, "@turbo", runtime.GOOS+"-"+arch, "bin", "turbo")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
