package forks

import (
	"context"

	"github.com/spf13/cobra"

	broodv1 "brood/api/brood/v1"
	"brood/client"
	"brood/internal/edge/cli"
)

func newIdentity(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "identity NAME",
		Short: "Show what was renewed in a fork",
		Long: `Show what was renewed in a fork before it was handed out, as it was confirmed
from inside: what makes it another than its siblings.`,
		Example:           "  brood sb identity base-k3x9qa-0",
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: a.complete(1, sandboxNames),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			i, err := c.GetIdentity(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.message(i)
			}
			return a.showIdentity(i)
		}),
	}
}

func (a *app) showIdentity(i *broodv1.Identity) error {
	err := cli.Facts(a.Out, [][2]string{
		{"name", i.GetName()},
		{"hostname", i.GetHostname()},
		{"machine-id", i.GetMachineId()},
		{"uuid", i.GetOrigin().GetUuid()},
		{"forked from", origin(i.GetOrigin())},
		{"confirmed", ago(i.GetConfirmedAt())},
	})
	if err != nil || len(i.GetRenewals()) == 0 {
		return err
	}
	var rows [][]string
	for _, r := range i.GetRenewals() {
		done := "renewed"
		if !r.GetRenewed() {
			done = "not here"
		}
		rows = append(rows, []string{r.GetPart(), done, r.GetDetail()})
	}
	if err := a.Text("\n"); err != nil {
		return err
	}
	return cli.Table(a.Out, []string{"PART", "", "DETAIL"}, rows)
}
