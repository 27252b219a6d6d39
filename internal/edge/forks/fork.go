package forks

import (
	"context"

	"github.com/spf13/cobra"

	"brood/client"
	"brood/internal/edge/cli"
)

func newFork(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "fork SOURCE [NAME]",
		Short: "Fork a checkpoint or a sandbox once",
		Long: `Start a sandbox that goes on from SOURCE, a checkpoint or else a sandbox;
checkpoint:NAME and sandbox:NAME say which. A sandbox is saved for this fork, and
that goes with it. Without NAME one is drawn. The fork's name is printed.

What was started with exec goes on in the fork ("brood sb ps" shows it), but its
output and its id stay with the sandbox that it was started in.`,
		Example:           "  brood sb fork base try-1\n  brood sb fork sandbox:src",
		Args:              cli.Takes(1, 2),
		ValidArgsFunction: a.complete(1, sourceNames),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			name := ""
			if len(args) == 2 {
				name = args[1]
			}
			r, err := c.Fork(ctx, args[0], name)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.message(r)
			}
			return a.Text("%s\n", r.GetSandbox().GetName())
		}),
	}
}
