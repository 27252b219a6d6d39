package forks

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"brood/client"
	"brood/internal/edge/cli"
	"brood/internal/home"
)

func newCheckpoint(a *app) *cobra.Command {
	var o client.CheckpointOptions
	cmd := &cobra.Command{
		Use:   "checkpoint SOURCE NAME",
		Short: "Save a sandbox under a name",
		Long: `Save a sandbox as a checkpoint: memory, processes and disk, cut at one instant.
The sandbox goes on; it stands still for the moment of the cut. Of one whose
command has ended the disk alone is saved.

What was started with exec is saved too, and goes on in the forks, where "brood
sb ps" shows it. Its output and its id stay with SOURCE: in a fork it writes to
nobody. Folders of --mount are not saved: forks need them, as they are then.`,
		Example: `  brood sb checkpoint src base
  brood sb checkpoint src base --replace --pin`,
		Args:              cli.Takes(2, 2),
		ValidArgsFunction: a.complete(1, sandboxNames),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			r, err := c.CreateCheckpoint(ctx, args[0], args[1], o)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.message(r)
			}
			cp := r.GetCheckpoint()
			still := ""
			if cp.GetHasMemory() { // else nothing ran that could stand still
				still = fmt.Sprintf(", %s stood still for %s", args[0], cli.Took(r.GetPausedMs()))
			}
			return a.Text("%s  %s, %s in %s%s\n", cp.GetName(), cli.Short(cp.GetDigest()), home.Bytes(cp.GetSizeBytes()), cli.Took(r.GetElapsedMs()), still)
		}),
	}
	cmd.Flags().BoolVar(&o.Replace, "replace", false, "take the name from the checkpoint that has it")
	cmd.Flags().BoolVar(&o.Pin, "pin", false, "keep it from being removed")
	return cmd
}
