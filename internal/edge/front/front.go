package front

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"brood/internal/edge/cli"
	"brood/internal/edge/runs"
	"brood/internal/program"
)

// Main runs the command line and returns its exit code. args are without the
// program's name.
func Main(args []string) int {
	args = cli.Helped(args)
	a := cli.New()
	a.HandOver = func() error {
		if home, json := said(args); home != "" || json {
			a.Home, a.JSON = home, json
		}
		h, err := a.Dir()
		if err != nil {
			return err
		}
		return program.Become(h, args)
	}
	commands := Commands(a)
	if completesElsewhere(args, commands) {
		return a.Report(a.HandOver())
	}
	return a.Main(args, commands...)
}

// completesElsewhere says that a shell asks what may follow a command of the
// whole program: names of sandboxes are asked of the daemon.
func completesElsewhere(args []string, commands []*cobra.Command) bool {
	if len(args) < 3 || !strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return false // what is typed last may still become anything
	}
	for _, word := range args[1 : len(args)-1] {
		if i := slices.IndexFunc(commands, func(c *cobra.Command) bool { return c.Name() == word || c.HasAlias(word) }); i >= 0 {
			return commands[i].DisableFlagParsing
		}
	}
	return false
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

// said reads --home and --json out of arguments that are parsed elsewhere.
func said(args []string) (home string, json bool) {
	var words []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--" || runsAnother(words) && !strings.HasPrefix(arg, "-"):
			return home, json // the rest is another command's
		case arg == "--json" || arg == "--json=true":
			json = true
		case strings.HasPrefix(arg, "--home="):
			home = strings.TrimPrefix(arg, "--home=")
		case arg == "--home" && i+1 < len(args):
			i++
			home = args[i]
		case !strings.HasPrefix(arg, "-"):
			words = append(words, arg)
		}
	}
	return home, json
}

// runsAnother says that a command was named whose arguments end with those of
// another: their flags are not ours.
func runsAnother(words []string) bool {
	return len(words) == 2 && slices.Contains([]string{"sb", "sandbox", "batch"}, words[0]) && slices.Contains([]string{"exec", "create"}, words[1])
}
