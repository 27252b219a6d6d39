package forks

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	broodv1 "brood/api/brood/v1"
	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/edge/cli"
	"brood/internal/home"
)

func newImage(a *app) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:     "image",
		Short:   "List, make and remove images",
		Long:    "List, make and remove images: read-only filesystems that sandboxes are made from.",
		Example: "  brood image import ./rootfs --name app\n  brood image ls",
	}, newImageList(a), newImageImport(a), newImageRemove(a), newImagePrune(a))
}

func newImageList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the images",
		Long:    "List the images of this machine, newest first.",
		Example: "  brood image ls",
		Args:    cli.Takes(0, 0),
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) error {
			all, err := c.ListImages(ctx)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.message(&broodv1.ListImagesResponse{Images: all})
			}
			var rows [][]string
			for _, i := range all {
				rows = append(rows, []string{cli.OrDash(i.GetName()), cli.Short(i.GetDigest()), i.GetKind(), home.Bytes(i.GetSizeBytes()), strconv.Itoa(int(i.GetUsedBy())), ago(i.GetCreatedAt()), i.GetOrigin()})
			}
			return cli.Table(a.Out, []string{"NAME", "DIGEST", "KIND", "SIZE", "USED BY", "MADE", "FROM"}, rows)
		}),
	}
}

func newImageImport(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "import PATH",
		Short:   "Make an image of a folder or a tar",
		Long:    "Make an image of a folder that holds a root filesystem, or of a tar of one (plain,\ngzip or zstd). The image's digest is printed. The same content is the same image.",
		Example: "  brood image import ./rootfs --name app\n  docker export box > box.tar && brood image import box.tar",
		Args:    cli.Takes(1, 1),
		RunE: cli.Interruptible(func(ctx context.Context, args []string) error {
			path, err := cli.Absolute(args[0])
			if err != nil {
				return errs.New(errs.InvalidArgument, "%s: %w", args[0], err)
			}
			c, err := a.dial(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			status := newStatus(a.Err)
			i, err := c.ImportImage(ctx, path, name, func(p *broodv1.ImportImageProgress) {
				status.set(fmt.Sprintf("importing: %s, %s", cli.Plural(p.GetEntries(), "file"), home.Bytes(p.GetBytes())))
			})
			status.clear()
			if err != nil {
				return err
			}
			if a.JSON {
				return a.message(i)
			}
			return a.Text("%s\n", i.GetDigest())
		}),
	}
	cmd.Flags().StringVarP(&name, "name", "n", "", "`name` for it; it moves here from the image that has it (default: none)")
	return cmd
}
