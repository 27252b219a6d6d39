package forks

import (
	"context"

	"github.com/spf13/cobra"

	"brood/client"
	"brood/internal/edge/cli"
)

func newBatchExec(a *app) *cobra.Command {
	var f execFlags
	var parallel int
	cmd := &cobra.Command{
		Use:                   "exec [flags] BATCH [--] COMMAND...",
		DisableFlagsInUseLine: true,
		Short:                 "Run a command in every fork of a batch",
		Long: `Run a command in every ready fork of a batch. Flags go before BATCH. Output is
collected and shown when the command ends in a fork, with the fork's name in
front of each line; the exit code is 1 when it failed in any. Of each output the
first MiB is kept, the rest is dropped: have the command write what is longer to
a file, and copy that out ("brood batch cp"). A batch at work is waited for:
"brood sb fork-many SOURCE N -- COMMAND" does not wait.

With --json there is a line {"exec":…} for each fork. An output that is not
UTF-8 is "stdout_base64" or "stderr_base64" there, in place of "stdout" or
"stderr"; "truncated" is true when more was written than is kept.`,
		Example: "  brood batch exec b-3f0c -- cat /run/brood/fork.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if id, argv := nameAndCommand(args); id == "" || len(argv) == 0 {
				return cli.WrongUse(cmd, "a batch and a command are needed")
			}
			return nil
		},
		ValidArgsFunction: a.complete(1, batchNames),
	}
	f.registerPlace(cmd.Flags())
	cmd.Flags().IntVar(&parallel, "parallel", 16, "commands running at once")
	cmd.Flags().SetInterspersed(false)
	cmd.RunE = cli.Interruptible(func(ctx context.Context, args []string) error {
		id, argv := nameAndCommand(args)
		o, err := f.options(argv)
		if err != nil {
			return err
		}
		job, err := newJob(o, parallel, false)
		if err != nil {
			return err
		}
		c, err := a.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		forks, err := a.readyForks(ctx, c, id)
		if err != nil {
			return err
		}
		return a.runJob(ctx, c, forks, job)
	})
	return cmd
}

// runJob runs a job in forks that are there.
func (a *app) runJob(ctx context.Context, c *client.Client, forks []*client.ForkBatchItem, j *job) error {
	show := func(o *outcome) error { return a.showOutcome(o) }
	if a.JSON {
		show = (&jsonDisplay{app: a}).ran
	}
	crew := newCrew(ctx, c, j)
	defer crew.stop()
	for _, item := range forks {
		crew.add(item)
	}
	tally := &tally{}
	for crew.busy() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case o := <-crew.results:
			crew.took()
			tally.ran(o)
			if err := show(o); err != nil {
				return err
			}
		}
	}
	return tally.verdict()
}
