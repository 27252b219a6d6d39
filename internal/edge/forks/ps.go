package forks

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	broodv1 "brood/api/brood/v1"
	"brood/client"
	"brood/internal/edge/cli"
	"brood/internal/home"
)

func newProcesses(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "ps NAME",
		Short:             "List the processes in a sandbox",
		Long:              "List the processes in a sandbox, with the pids they have inside.",
		Example:           "  brood sb ps src",
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: a.complete(1, sandboxNames),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			all, err := c.ListProcesses(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.message(&broodv1.ListProcessesResponse{Processes: all})
			}
			var rows [][]string
			for _, p := range all {
				rows = append(rows, []string{
					strconv.Itoa(int(p.GetPid())), strconv.Itoa(int(p.GetParentPid())), strconv.Itoa(int(p.GetUid())), p.GetState(),
					home.Bytes(p.GetResidentBytes()), fmt.Sprintf("%.2fs", p.GetCpuTime().AsDuration().Seconds()), cli.OneLine(strings.Join(p.GetArgv(), " ")),
				})
			}
			return cli.Table(a.Out, []string{"PID", "PARENT", "UID", "STATE", "MEMORY", "CPU", "COMMAND"}, rows)
		}),
	}
}
