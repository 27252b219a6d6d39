package forks

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	broodv1 "brood/api/brood/v1"
	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/edge/cli"
)

// exitBrood is the status of exec and shell when brood failed, and not the
// command.
const exitBrood = 125

// execFlags say how a command runs.
type execFlags struct {
	stdin, tty, detach bool
	env                []string
	workdir, user      string
}

func (f *execFlags) register(flags *pflag.FlagSet) {
	flags.BoolVarP(&f.stdin, "stdin", "i", false, "pass standard input to the command")
	flags.BoolVarP(&f.tty, "tty", "t", false, "give it a terminal; implies --stdin")
	flags.BoolVarP(&f.detach, "detach", "d", false, "return as soon as it runs, print its id, and let it run; sb attach shows its output")
	f.registerPlace(flags)
}

func (f *execFlags) registerPlace(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&f.env, "env", "e", nil, "`NAME=VALUE` for the command's environment; NAME alone passes on yours; repeatable")
	flags.StringVarP(&f.workdir, "workdir", "w", "", "working `folder` (default: the sandbox's)")
	flags.StringVarP(&f.user, "user", "u", "", "`user`: name or uid, with :group if wanted (default: the sandbox's)")
}

// options are what the flags ask for.
func (f *execFlags) options(argv []string) (client.ExecOptions, error) {
	env, err := environment(f.env)
	if f.tty && err == nil {
		if _, ok := env["TERM"]; !ok && os.Getenv("TERM") != "" {
			env["TERM"] = os.Getenv("TERM")
		}
	}
	return client.ExecOptions{Argv: argv, Env: env, Workdir: f.workdir, User: f.user, TTY: f.tty, Stdin: f.stdin || f.tty}, err
}

func newExec(a *app) *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:                   "exec [flags] NAME [--] COMMAND...",
		DisableFlagsInUseLine: true,
		Short:                 "Run a command in a sandbox",
		Long: `Run a command in a sandbox. Flags go before NAME; what follows is the command.

The exit code is the command's own: 128 and the signal's number when one ended
it, 126 when it cannot be executed, 127 when it is not found, and 125 when brood
failed. Signals are passed on to it. When this program goes away, the command is
hung up after ten seconds (SIGHUP, then SIGKILL), unless --detach was given.
"brood sb execs" lists what runs. With --json what happens is written as
lines {"started":…}, {"stdout":…}, {"stderr":…}, {"exit":…}, with the data in
base64.`,
		Example: `  brood sb exec src -- ls -l /work
  tar c . | brood sb exec -i src -- tar x -C /work
  brood sb exec -t src bash`,
		Args: func(cmd *cobra.Command, args []string) error {
			if name, argv := nameAndCommand(args); name == "" || len(argv) == 0 {
				return cli.WrongUse(cmd, "a sandbox and a command are needed")
			}
			return nil
		},
		ValidArgsFunction: a.complete(1, sandboxNames),
	}
	f.register(cmd.Flags())
	cmd.Flags().SetInterspersed(false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, argv := nameAndCommand(args)
		o, err := f.options(argv)
		if err != nil {
			return err
		}
		if f.detach && o.Stdin {
			return cli.WrongUse(cmd, "--detach leaves nobody to type: leave --stdin and --tty out")
		}
		o.Detach = f.detach
		return a.exec(cmd.Context(), name, o)
	}
	return cmd
}

// nameAndCommand parts NAME [--] COMMAND...
func nameAndCommand(args []string) (string, []string) {
	if len(args) == 0 {
		return "", nil
	}
	name, argv := args[0], args[1:]
	if len(argv) > 0 && argv[0] == "--" {
		argv = argv[1:]
	}
	return name, argv
}

// exec runs a command and ends as it does.
func (a *app) exec(ctx context.Context, name string, o client.ExecOptions) error {
	exit, err := a.watchExec(ctx, name, o)
	return a.execEnd(exit, err)
}

// execEnd ends this program as the command ended; no exit means that it runs.
func (a *app) execEnd(exit *broodv1.ExecExit, err error) error {
	switch {
	case errs.Is(err, errs.Canceled):
		return err
	case err != nil:
		return &cli.ExitError{Code: exitBrood, Err: err}
	case exit == nil:
		return nil
	case exit.GetError() != "" && !a.JSON:
		return &cli.ExitError{Code: int(exit.GetCode()), Err: errs.New(errs.FailedPrecondition, "%s", exit.GetError())}
	case exit.GetCode() != 0:
		return &cli.ExitError{Code: int(exit.GetCode())}
	}
	return nil
}

// watchExec runs a command; no exit means that it was detached.
func (a *app) watchExec(ctx context.Context, name string, o client.ExecOptions) (*broodv1.ExecExit, error) {
	starting, stop := cli.Interrupts(ctx)
	defer stop()
	c, err := a.dial(starting)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	out, outIsTerminal := a.Screen()
	if o.TTY && outIsTerminal {
		cols, rows := cli.Size(out)
		o.Cols, o.Rows = uint32(cols), uint32(rows)
	}
	signals := newSignals()
	defer signals.stop()
	e, err := c.StartExec(starting, name, o)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	stop() // from here on signals are the command's
	if err := a.showStarted(e, o.Detach); err != nil {
		return nil, err
	}
	if o.Detach && e.ID() != "" {
		return nil, nil
	}
	return a.waitExec(ctx, e, o, signals)
}

func (a *app) showStarted(e *client.Execution, detach bool) error {
	switch {
	case e.ID() == "":
		return nil // it did not start: the exit says why
	case a.JSON:
		return a.startedEvent(e.ID(), e.PID())
	case detach:
		return a.Text("%s\n", e.ID())
	}
	return nil
}

// waitExec joins a running command with this program's streams and signals.
func (a *app) waitExec(ctx context.Context, e *client.Execution, o client.ExecOptions, signals *signals) (*broodv1.ExecExit, error) {
	streams := a.execStreams()
	if o.Stdin {
		streams.In = a.In
	}
	if o.TTY && cli.IsTerminal(a.In) {
		before, err := term.MakeRaw(int(a.In.Fd()))
		if err != nil {
			return nil, errs.New(errs.FailedPrecondition, "set the terminal to raw: %w", err)
		}
		defer func() { _ = term.Restore(int(a.In.Fd()), before) }() // the terminal may be gone
	}
	screen, _ := a.Screen()
	if !o.TTY {
		screen = nil
	}
	exit, err := signals.forward(ctx, e, screen, func(ctx context.Context) (*broodv1.ExecExit, error) { return e.Wait(ctx, streams) })
	return a.exitEvent(exit, err)
}

// execStreams take a command's output: as it is, or as events.
func (a *app) execStreams() client.Streams {
	if a.JSON {
		return client.Streams{Out: a.execWriter(false), Err: a.execWriter(true)}
	}
	return client.Streams{Out: a.Out, Err: a.Err}
}

// startedEvent is the first line of an exec's JSON.
func (a *app) startedEvent(exec string, pid uint32) error {
	return a.message(&broodv1.ExecEvent{Event: &broodv1.ExecEvent_Started{Started: &broodv1.ExecStarted{ExecId: exec, Pid: pid}}})
}

// exitEvent tells how an exec ended, as JSON the last line.
func (a *app) exitEvent(exit *broodv1.ExecExit, err error) (*broodv1.ExecExit, error) {
	if err == nil && a.JSON {
		err = a.message(&broodv1.ExecEvent{Event: &broodv1.ExecEvent_Exit{Exit: exit}})
	}
	return exit, err
}

// execWriter writes output as events.
func (a *app) execWriter(stderr bool) io.Writer {
	var offset uint64
	return writerFunc(func(p []byte) (int, error) {
		o := &broodv1.ExecOutput{Offset: offset, Data: p}
		ev := &broodv1.ExecEvent{Event: &broodv1.ExecEvent_Stdout{Stdout: o}}
		if stderr {
			ev.Event = &broodv1.ExecEvent_Stderr{Stderr: o}
		}
		offset += uint64(len(p))
		return len(p), a.message(ev)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// execOver reports errors that say only that the command is over.
func execOver(err error) bool {
	switch errs.CodeOf(err) {
	case errs.NotFound, errs.FailedPrecondition:
		return true
	default:
		return errors.Is(err, context.Canceled)
	}
}
