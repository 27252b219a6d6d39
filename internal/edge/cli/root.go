package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"brood/internal/base/errs"
)

// Tree makes the tree of commands.
func (a *App) Tree(commands ...*cobra.Command) *cobra.Command {
	root := Group(&cobra.Command{
		Use:   "brood",
		Short: "Fork running sandboxes by the batch, and run a workspace's tasks",
		Long: `brood forks running sandboxes by the batch, and runs a workspace's tasks.

A sandbox that has done the slow part (booted, installed, imported, warmed) is
saved once as a checkpoint, memory and processes included. Any number of copies
go on from there, each under its own name and with its own identity. The daemon
that owns the sandboxes is started when a command needs it.

"brood run" runs the tasks of a monorepo, in the order of their dependencies and
from the cache where nothing changed. It needs no daemon.`,
		Example: `  brood run build test
  brood sb create host --name src -- python3 -u app.py
  brood sb checkpoint src base
  brood sb fork-many base 16
  brood sb exec base-k3x9qa-0 -- hostname`,
		SilenceErrors: true,
		SilenceUsage:  true,
	},
		append(commands, newCompletion(a), newVersion(a))...,
	)
	root.CompletionOptions.DisableDefaultCmd = true
	root.Version = Version
	root.SetVersionTemplate(versionLine())
	root.SetHelpCommand(&cobra.Command{Hidden: true, Use: "no-help"}) // Helped has turned it into --help
	flags := root.PersistentFlags()
	flags.BoolVar(&a.JSON, "json", false, "write JSON to standard output, and errors as JSON to standard error")
	flags.StringVar(&a.Home, "home", "", "the daemon's `folder` (default $BROOD_HOME, else ~/.brood)")
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	a.Root = root
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return refuseEmpty(cmd) }
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		hint := ""
		if strings.Contains(cmd.Use, "[-- ") {
			hint = " (a command goes after --)"
		}
		return errs.New(errs.InvalidArgument, "%w%s: see \"%s --help\"", err, hint, cmd.CommandPath())
	})
	return root
}

// refuseEmpty refuses a flag that was given and has no value: most likely a
// variable of a script that was not set, which must not mean the default.
func refuseEmpty(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && f.Value.Type() != "bool" && f.Value.String() == "" {
			err = errs.New(errs.InvalidArgument, "--%s has an empty value: leave it out, or see \"%s --help\"", f.Name, cmd.CommandPath())
		}
	})
	return err
}

// Group makes a command that only holds others. Alone it shows its help; what
// it does not have is a bad argument.
func Group(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(children...)
	cmd.Args = cobra.ArbitraryArgs
	if cmd.RunE == nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return UnknownCommand(cmd, args[0])
			}
			return cmd.Help()
		}
	}
	return cmd
}

// UnknownCommand refuses a name that no command below cmd has.
func UnknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	hint := ""
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		hint = ", did you mean " + strings.Join(near, " or ")
	}
	return errs.New(errs.InvalidArgument, "%s has no command %q%s: see \"%[1]s --help\"", cmd.CommandPath(), name, hint)
}

// Takes checks the number of arguments; most < 0 is any number.
func Takes(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		own := max(least, most) // what follows those is a command's, and may be anything
		if slices.Contains(args[:min(own, len(args))], "") {
			return WrongUse(cmd, "an argument is empty")
		}
		if len(args) >= least && (most < 0 || len(args) <= most) {
			return nil
		}
		return WrongUse(cmd, "wrong number of arguments (%d)", len(args))
	}
}

// WrongUse says what is wrong with the arguments, and how it should be.
func WrongUse(cmd *cobra.Command, format string, args ...any) error {
	return errs.New(errs.InvalidArgument, "%s: use \"%s\", or see \"%s --help\"", fmt.Sprintf(format, args...), cmd.UseLine(), cmd.CommandPath())
}
