package forks

import (
	"context"

	"github.com/spf13/cobra"

	"brood/client"
	"brood/internal/edge/cli"
)

func newList(a *app) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the sandboxes",
		Long:    "List the sandboxes of this machine, by name.",
		Example: "  brood sb ls\n  brood sb ls --quiet | grep ^base- | xargs brood sb rm",
		Args:    cli.Takes(0, 0),
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) error {
			return a.listSandboxes(ctx, c, quiet)
		}),
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "names only")
	return cmd
}

func (a *app) listSandboxes(ctx context.Context, c *client.Client, quiet bool) error {
	r, err := c.ListSandboxes(ctx)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.message(r)
	}
	for _, w := range r.GetWarnings() {
		a.Say("warning: %s", w)
	}
	var rows [][]string
	for _, s := range r.GetSandboxes() {
		if quiet {
			if err := a.Text("%s\n", s.GetName()); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{s.GetName(), word(s.GetState(), "SANDBOX_STATE_"), cli.OrDash(s.GetImage()), cli.OrDash(s.GetRuntime()), ago(s.GetCreatedAt()), in(s.GetExpiresAt())})
	}
	if quiet {
		return nil
	}
	return cli.Table(a.Out, []string{"NAME", "STATE", "IMAGE", "DRIVER", "MADE", "REMOVED"}, rows)
}
