package forks

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/edge/cli"
)

// removing is how many sandboxes are removed at once.
const removing = 8

func newRemove(a *app) *cobra.Command {
	var force, all bool
	cmd := &cobra.Command{
		Use:               "rm NAME...",
		Aliases:           []string{"remove"},
		Short:             "Remove sandboxes",
		Long:              "End sandboxes and remove what they hold: processes, memory, disk and logs.\nCheckpoints made of them stay.",
		Example:           "  brood sb rm src\n  brood sb rm -f maybe-there\n  brood sb rm --all",
		Args:              cli.Takes(0, -1),
		ValidArgsFunction: a.complete(-1, sandboxNames),
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "it is no error when one does not exist")
	cmd.Flags().BoolVar(&all, "all", false, "remove all sandboxes of this machine")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if all == (len(args) > 0) {
			return cli.WrongUse(cmd, "name the sandboxes, or say --all")
		}
		return cli.Interruptible(func(ctx context.Context, names []string) error {
			c, err := a.dial(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			if all {
				if names, err = sandboxNames(ctx, c); err != nil {
					return err
				}
			}
			return a.remove(ctx, c, names, force || all)
		})(cmd, args)
	}
	return cmd
}

// remove removes sandboxes and says which; a failure stops no other.
func (a *app) remove(ctx context.Context, c *client.Client, names []string, force bool) error {
	failures := life.Each(ctx, len(names), removing, func(ctx context.Context, i int) error {
		return c.DeleteSandbox(ctx, names[i])
	})
	removed := make([]string, 0, len(names))
	var failed []error
	for i, err := range failures {
		switch {
		case err == nil:
			removed = append(removed, names[i])
		case force && errs.Is(err, errs.NotFound): // nothing was to be done
		default:
			failed = append(failed, about("remove "+names[i], err))
		}
	}
	err := errors.Join(failed...)
	if a.JSON {
		return errors.Join(err, a.Value(map[string][]string{"removed": removed}))
	}
	for _, name := range removed {
		err = errors.Join(err, a.Text("%s\n", name))
	}
	return err
}

// about says what failed, unless the error does so itself: what is refused is
// refused by name.
func about(what string, err error) error {
	switch errs.CodeOf(err) {
	case errs.InvalidArgument, errs.NotFound, errs.FailedPrecondition, errs.DataLoss:
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}
