package forks

import (
	"github.com/spf13/cobra"

	"brood/internal/edge/cli"
)

// app is one run of the command line.
type app struct {
	*cli.App
	daemon RunDaemon
}

// Commands are the commands of sandboxes and their daemon; bench are
// measurements beside those of forks.
func Commands(a *cli.App, daemon RunDaemon, bench ...*cobra.Command) []*cobra.Command {
	return (&app{App: a, daemon: daemon}).commands(bench)
}

func (a *app) commands(bench []*cobra.Command) []*cobra.Command {
	return []*cobra.Command{newSandbox(a), newBatch(a), newImage(a), newDaemon(a), newDoctor(a), newDemo(a), newBench(a, bench...)}
}
