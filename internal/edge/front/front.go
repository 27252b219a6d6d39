package front

import (
	"strings"

	"github.com/spf13/cobra"

	"brood/internal/edge/cli"
	"brood/internal/edge/runs"
	"brood/internal/program"
)

// Main runs the command line and returns its exit code. args are without the
// program's name.
func Main(args []string) int {
	a := cli.New()
	a.HandOver = func() error {
		if said := homeIn(args); said != "" {
			a.Home = said
		}
		h, err := a.Dir()
		if err != nil {
			return err
		}
		return program.Become(h, args)
	}
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return a.Report(a.HandOver()) // names are asked of the daemon
	}
	return a.Main(args, Commands(a)...)
}

// Commands are the commands of this program, and stand-ins for the others.
func Commands(a *cli.App) []*cobra.Command {
	return append(runs.Commands(a, nil, elsewhere(a, "serve", "Serve a cache for a team")),
		elsewhere(a, "sb", "Make, use, save and fork sandboxes", "sandbox"),
		elsewhere(a, "batch", "See batches of forks again, and use their forks together"),
		elsewhere(a, "image", "List, make and remove images"),
		elsewhere(a, "daemon", "Run and control the daemon"),
		elsewhere(a, "doctor", "Check what this machine can do"),
		elsewhere(a, "demo", "Save a running program and fork it, to see it work"),
		elsewhere(a, "bench", "Measure brood against a floor, in one run"),
	)
}

// elsewhere stands for a command of the whole program.
func elsewhere(a *cli.App, name, short string, aliases ...string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Aliases: aliases,
		DisableFlagParsing: true,
		RunE:               func(*cobra.Command, []string) error { return a.HandOver() },
	}
}

// homeIn is the value of --home in arguments that are parsed elsewhere.
func homeIn(args []string) (dir string) {
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if value, ok := strings.CutPrefix(arg, "--home="); ok {
			dir = value
		} else if arg == "--home" && i+1 < len(args) {
			dir = args[i+1]
		}
	}
	return dir
}
