package forks

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"brood/internal/base/errs"
	"brood/internal/edge/cli"
)

func newBench(a *app, more ...*cobra.Command) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "bench",
		Short: "Measure brood against a floor, in one run",
		Long: `Measure brood beside what it stands on, in turns in one run, and print the ratio.
Absolute times depend on the machine and what else it does; the ratio much less.`,
		Example: "  brood bench fork --count 32\n  brood bench run",
	}, append(more, newBenchFork(a), newBenchIdle())...)
}

// forkBench is what a measurement of forks is asked to do.
type forkBench struct {
	Count    int    `json:"count"`
	Parallel int    `json:"parallel"`
	Rounds   int    `json:"rounds"`
	HeapMiB  int    `json:"heap_mib"`
	Runsc    string `json:"-"`
}

func newBenchFork(a *app) *cobra.Command {
	var b forkBench
	cmd := &cobra.Command{
		Use:   "fork",
		Short: "Forks beside restores by a bare runsc",
		Long: `Fork a checkpoint in a batch, and in turns with that restore the same program as
often with a bare runsc's own command: same gVisor, same image, as many at once.
A fork counts when it is ready, its identity confirmed from inside; a restore when
the command ends. Then, of both: memory (PSS) and processor time of an idle one,
and the times of ten checkpoints in a row.

The bare runsc is built by "make bench". It needs root, since runsc restores for
nobody else.`,
		Example: "  make bench\n  brood bench fork --count 32 --rounds 5 --json",
		Args:    cli.Takes(0, 0),
		RunE: cli.Interruptible(func(ctx context.Context, _ []string) error {
			if b.Count < 1 || b.Parallel < 1 || b.Rounds < 1 || b.HeapMiB < 0 {
				return errs.New(errs.InvalidArgument, "--count, --parallel and --rounds are at least 1, --heap at least 0")
			}
			if b.Runsc == "" {
				b.Runsc = cli.BesideMe("runsc")
			}
			return a.benchFork(ctx, b)
		}),
	}
	flags := cmd.Flags()
	flags.IntVar(&b.Count, "count", 32, "forks in a round")
	flags.IntVar(&b.Parallel, "parallel", 4, "at most this many at once")
	flags.IntVar(&b.Rounds, "rounds", 5, "rounds of each")
	flags.IntVar(&b.HeapMiB, "heap", 8, "`MiB` of memory that the program has touched")
	flags.StringVar(&b.Runsc, "runsc", "", "the bare runsc's `path` (default: runsc beside this program)")
	return cmd
}

// idleReady is what the idle program makes when it has its memory.
const idleReady = "/tmp/ready"

// newBenchIdle is the program that is forked: it touches memory and waits.
func newBenchIdle() *cobra.Command {
	var heap int
	var check bool
	cmd := &cobra.Command{
		Use:    "idle",
		Short:  "Touch memory and wait, in a sandbox",
		Hidden: true,
		Args:   cli.Takes(0, 0),
		RunE: cli.Interruptible(func(ctx context.Context, _ []string) error {
			if check {
				_, err := os.Stat(idleReady)
				return err
			}
			memory := make([]byte, heap<<20)
			for i := 0; i < len(memory); i += 4096 {
				memory[i] = byte(i >> 12)
			}
			if err := os.WriteFile(idleReady, nil, 0o600); err != nil {
				return err
			}
			<-ctx.Done()
			return fmt.Errorf("%d bytes", len(memory)) // used until here
		}),
	}
	cmd.Flags().IntVar(&heap, "heap", 8, "`MiB` of memory to touch")
	cmd.Flags().BoolVar(&check, "check", false, "only say whether another one is ready")
	return cmd
}
