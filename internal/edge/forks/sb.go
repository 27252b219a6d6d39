package forks

import (
	"github.com/spf13/cobra"

	"brood/internal/edge/cli"
)

func newSandbox(a *app) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:     "sb",
		Aliases: []string{"sandbox"},
		Short:   "Make, use, save and fork sandboxes",
		Long: `Make, use, save and fork sandboxes.

A sandbox is an isolated container with a name. A checkpoint is its saved
state, memory and processes included. A fork is a sandbox that goes on from a
checkpoint.`,
		Example: `  brood sb create host --name src -- python3 -u app.py
  brood sb checkpoint src base
  brood sb fork-many base 16
  brood sb ls`,
	},
		newCreate(a), newList(a), newInfo(a), newExec(a), newAttach(a), newExecs(a), newKill(a), newShell(a), newCopy(a), newLogs(a), newRemove(a),
		newIdentity(a), newProcesses(a), newCheckpoint(a), newFork(a), newForkMany(a), newCheckpoints(a),
	)
}
