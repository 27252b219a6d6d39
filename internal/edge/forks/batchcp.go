package forks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/edge/cli"
)

// copying is how many forks are copied to or from at once.
const copying = 4

func newBatchCopy(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "cp SRC DST",
		Short: "Copy files into or out of every fork of a batch",
		Long: `Copy a file or folder into every ready fork of a batch, or out of each into a
folder here, which is made when it does not exist and gets a folder for each
fork by name. One of SRC and DST is BATCH:/path. A batch at work is waited for.`,
		Example: "  brood batch cp input.json b-3f0c:/data/\n  brood batch cp b-3f0c:/data/result ./results",
		Args:    cli.Takes(2, 2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return a.completePlace(cmd, args, toComplete, batchNames)
		},
		RunE: cli.Interruptible(func(ctx context.Context, args []string) error {
			from, into := location(args[0]), location(args[1])
			if (from.sandbox == "") == (into.sandbox == "") || from.path == "-" || into.path == "-" {
				return errs.New(errs.InvalidArgument, "one of %q and %q must be BATCH:/path, and the other a path here", args[0], args[1])
			}
			c, err := a.dial(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			forks, err := a.readyForks(ctx, c, from.sandbox+into.sandbox)
			if err != nil {
				return err
			}
			return a.batchCopy(ctx, c, forks, from, into)
		}),
	}
}

func (a *app) batchCopy(ctx context.Context, c *client.Client, forks []*client.ForkBatchItem, from, into place) error {
	if into.sandbox == "" {
		gone, err := newFolder(into.path)
		if err != nil {
			return err
		}
		defer gone()
	}
	failures := life.Each(ctx, len(forks), copying, func(ctx context.Context, i int) error {
		name := forks[i].GetName()
		var err error
		var copied client.Copied
		if into.sandbox != "" {
			copied, err = c.CopyTo(ctx, reachable(forks[i]), from.path, into.path)
		} else {
			copied, err = copyOut(ctx, c, forks[i], from.path, filepath.Join(into.path, name))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		a.skipped(name+": ", copied)
		return nil
	})
	err := cli.Joined(failures)
	if a.JSON {
		copied := []string{}
		for i, failure := range failures {
			if failure == nil {
				copied = append(copied, forks[i].GetName())
			}
		}
		return errors.Join(err, a.Value(map[string][]string{"copied": copied}))
	}
	return err
}

// copyOut copies out of a fork into a folder of its own.
func copyOut(ctx context.Context, c *client.Client, fork *client.ForkBatchItem, from, dir string) (client.Copied, error) {
	gone, err := newFolder(dir)
	if err != nil {
		return client.Copied{}, err
	}
	defer gone()
	return c.CopyFrom(ctx, reachable(fork), from, dir)
}

// newFolder makes a folder unless it is there. If it was made and nothing came
// into it, gone removes it.
func newFolder(dir string) (gone func(), err error) {
	if st, err := os.Stat(dir); err == nil && st.IsDir() {
		return func() {}, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(dir) }, nil // it is not removed when something is in it
}

func newBatchRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "rm BATCH",
		Aliases:           []string{"remove"},
		Short:             "Remove the forks of a batch",
		Long:              "Remove the forks of a batch that still exist. A batch at work is\ncancelled first. What the batch was is kept for a day after its end.",
		Example:           "  brood batch rm b-3f0c",
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: a.complete(1, batchNames),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			b, err := c.CancelBatch(ctx, args[0]) // or more forks would come behind those that are removed
			if err != nil {
				return err
			}
			forks, err := a.readyForks(ctx, c, b.GetId())
			if err != nil {
				return err
			}
			var names []string
			for _, item := range forks {
				names = append(names, reachable(item))
			}
			return a.remove(ctx, c, names, true)
		}),
	}
}
