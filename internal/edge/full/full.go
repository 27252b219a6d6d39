package full

import (
	"github.com/spf13/cobra"

	"brood/internal/edge/cli"
	"brood/internal/edge/forks"
	"brood/internal/edge/runs"
	"brood/internal/edge/share"
)

// Main runs the command line and returns its exit code. args are without the
// program's name.
func Main(args []string, daemon forks.RunDaemon) int {
	a := cli.New()
	return a.Main(args, Commands(a, daemon)...)
}

// Commands are all commands.
func Commands(a *cli.App, daemon forks.RunDaemon) []*cobra.Command {
	return append(runs.Commands(a, share.Connect, share.Serve(a)), forks.Commands(a, daemon, runs.Bench(a))...)
}
