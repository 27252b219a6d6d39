package runs

import (
	"github.com/spf13/cobra"

	"brood/internal/edge/cli"
)

// app is one run of the command line.
type app struct {
	*cli.App
	connect Connect
	alone   error // why a run that has a shared cache goes without
}

func (a *app) warning(text string) { a.Say("warning: %s", text) }

// Commands are the commands of runs. serve is "brood cache serve". A program
// that does not link the clients of shared caches has no connect, and hands
// runs that use one over.
func Commands(a *cli.App, connect Connect, serve *cobra.Command) []*cobra.Command {
	return (&app{App: a, connect: connect}).commands(serve)
}

func (a *app) commands(serve *cobra.Command) []*cobra.Command {
	return []*cobra.Command{newRun(a), newWhy(a), newRuns(a), newInit(a), newCache(a, serve)}
}

// Bench is "brood bench run".
func Bench(a *cli.App) *cobra.Command { return newBench(&app{App: a}) }
