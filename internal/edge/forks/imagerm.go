package forks

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	broodv1 "brood/api/brood/v1"
	"brood/client"
	"brood/internal/edge/cli"
	"brood/internal/home"
)

func newImageRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "rm IMAGE...",
		Aliases:           []string{"remove"},
		Short:             "Remove images",
		Long:              "Remove images, named by name, digest, or the beginning of a digest. One that\nsandboxes or checkpoints need is refused, naming these.",
		Example:           "  brood image rm app\n  brood image rm 3aef63f7c2b1",
		Args:              cli.Takes(1, -1),
		ValidArgsFunction: a.complete(-1, imageRefs),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			gone := &broodv1.PruneImagesResponse{}
			var failed error
			for _, ref := range args {
				r, err := c.RemoveImage(ctx, ref)
				if err != nil {
					failed = errors.Join(failed, about("remove "+ref, err))
					continue
				}
				gone.Removed = append(gone.Removed, r.GetImage())
				gone.FreedBytes += r.GetFreedBytes()
			}
			return errors.Join(failed, a.removedImages(gone, ""))
		}),
	}
}

func newImagePrune(a *app) *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:     "prune",
		Short:   "Remove the images that nothing needs",
		Long:    "Remove the images that no sandbox and no checkpoint needs, and say how much disk\nthat frees.",
		Example: "  brood image prune --dry-run\n  brood image prune",
		Args:    cli.Takes(0, 0),
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) error {
			r, err := c.PruneImages(ctx, dry)
			if err != nil {
				return err
			}
			if dry {
				return a.removedImages(r, "would free %s\n")
			}
			return a.removedImages(r, "freed %s\n")
		}),
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be removed")
	return cmd
}

// removedImages says what is gone, and with total, what that frees.
func (a *app) removedImages(r *broodv1.PruneImagesResponse, total string) error {
	if a.JSON {
		return a.message(r)
	}
	for _, i := range r.GetRemoved() {
		line := cli.Short(i.GetDigest()) + "  " + home.Bytes(i.GetSizeBytes())
		if i.GetName() != "" {
			line = i.GetName() + "  " + line
		}
		if err := a.Text("%s\n", line); err != nil {
			return err
		}
	}
	if total == "" {
		return nil
	}
	return a.Text(total, home.Bytes(r.GetFreedBytes()))
}
