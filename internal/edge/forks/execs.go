package forks

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	broodv1 "brood/api/brood/v1"
	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/edge/cli"
)

func newExecs(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "execs NAME",
		Short: "List what was started in a sandbox with exec",
		Long: `List what was started in a sandbox with exec: what runs, and what has ended and
whose output is still kept ("brood sb attach" shows it). "brood sb ps" lists all
processes.`,
		Example:           "  brood sb execs src",
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: a.complete(1, sandboxNames),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			all, err := c.ListExecs(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.message(&broodv1.ListExecsResponse{Execs: all})
			}
			var rows [][]string
			for _, x := range all {
				rows = append(rows, []string{
					x.GetExecId(), strconv.Itoa(int(x.GetPid())), ago(x.GetStartedAt()), execState(x), cli.Clip(cli.OneLine(strings.Join(x.GetArgv(), " ")), commandWidth),
				})
			}
			return cli.Table(a.Out, []string{"ID", "PID", "STARTED", "STATE", "COMMAND"}, rows)
		}),
	}
}

// commandWidth is how much of a command a table shows, in cells; --json has all.
const commandWidth = 100

// execState says how far an exec is.
func execState(x *broodv1.ExecInfo) string {
	switch exit := x.GetExit(); {
	case exit.GetSignal() != 0:
		return fmt.Sprintf("ended by signal %d", exit.GetSignal())
	case exit != nil:
		return fmt.Sprintf("ended with %d", exit.GetCode())
	case x.GetAttached():
		return "runs, attached"
	}
	return "runs"
}

func newKill(a *app) *cobra.Command {
	var signal string
	cmd := &cobra.Command{
		Use:               "kill NAME EXEC",
		Short:             "Send a signal to what was started with exec",
		Long:              "Send a signal to what was started with exec, to all of its process group.\nEXEC is its id, as \"brood sb execs\" shows it, or the beginning of it.",
		Example:           "  brood sb kill src x-4k2m9q\n  brood sb kill src x-4k2m9q -s KILL",
		Args:              cli.Takes(2, 2),
		ValidArgsFunction: a.completeExecs,
	}
	cmd.Flags().StringVarP(&signal, "signal", "s", "TERM", "`signal`: a name, such as INT, or a number on Linux")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		number, err := signalNumber(signal)
		if err != nil {
			return err
		}
		return a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			x, err := findExec(ctx, c, args[0], args[1])
			if err != nil {
				return err
			}
			if err := c.SignalExec(ctx, args[0], x.GetExecId(), number); err != nil {
				return err
			}
			if a.JSON {
				return a.Value(map[string]any{"exec_id": x.GetExecId(), "signal": number})
			}
			return a.Text("%s\n", x.GetExecId())
		})(cmd, args)
	}
	return cmd
}

// completeExecs completes a sandbox, then what runs in it.
func (a *app) completeExecs(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return a.complete(1, sandboxNames)(cmd, args, toComplete)
	}
	return a.complete(2, func(ctx context.Context, c *client.Client) ([]string, error) {
		execs, err := c.ListExecs(ctx, args[0])
		var all []string
		for _, x := range execs {
			if x.GetExit() == nil {
				all = append(all, x.GetExecId())
			}
		}
		return all, err
	})(cmd, args, toComplete)
}

// signalNames are those of Linux (signal(7), x86 and ARM) by number, whatever
// this program runs on.
var signalNames = []string{
	1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 10: "USR1",
	11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT", 17: "CHLD", 18: "CONT", 19: "STOP", 20: "TSTP",
	21: "TTIN", 22: "TTOU", 23: "URG", 24: "XCPU", 25: "XFSZ", 26: "VTALRM", 27: "PROF", 28: "WINCH", 29: "IO", 30: "PWR", 31: "SYS",
}

// signalNumber understands TERM, SIGTERM and 15.
func signalNumber(s string) (int, error) {
	if n, err := strconv.Atoi(s); err == nil && n >= 1 && n <= 64 {
		return n, nil
	}
	name := strings.TrimPrefix(strings.ToUpper(s), "SIG")
	for n, known := range signalNames {
		if known == name && n > 0 {
			return n, nil
		}
	}
	return 0, errs.New(errs.InvalidArgument, "--signal %q is not known: write a name such as TERM, or a number from 1 to 64", s)
}
