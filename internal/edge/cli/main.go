package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"brood/internal/base/errs"
	"brood/internal/config"
	"brood/internal/home"
	"brood/internal/wire"
)

// version is what `make build` writes in.
var version = "dev"

// DaemonParams say how to run a daemon.
type DaemonParams struct {
	Home     string
	Version  string
	Settings config.Settings
	Log      io.Writer
	// Ready is called once the daemon answers.
	Ready func(wire.Discovery)
}

// RunDaemon serves until ctx ends or the daemon is asked to shut down. An
// error with code AlreadyExists says that the home has a daemon.
type RunDaemon func(ctx context.Context, p DaemonParams) error

// app is one run of the command line.
type app struct {
	in     *os.File
	out    io.Writer
	err    io.Writer
	daemon RunDaemon

	began time.Time // the command

	json bool   // --json
	home string // --home; empty: $BROOD_HOME or ~/.brood
	// shorthand is the NAME of "brood NAME" that was taken for a task.
	shorthand string
}

// Main runs the command line and returns its exit code. args are without the
// program's name.
func Main(args []string, daemon RunDaemon) int {
	a := &app{began: time.Now(), in: os.Stdin, out: os.Stdout, err: os.Stderr, daemon: daemon}
	root := newRoot(a)
	args, a.shorthand = expand(root, args)
	root.SetArgs(args)
	root.SetOut(a.out)
	root.SetErr(a.err)
	return a.report(root.ExecuteContext(context.Background()))
}

// action is what a command does.
type action func(ctx context.Context, args []string) error

// interruptible runs an action whose context ends with the first Ctrl-C or
// SIGTERM. The second ends the program at once.
func interruptible(f action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := interrupts(cmd.Context())
		defer stop()
		return f(ctx, args)
	}
}

func interrupts(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// dir is the home that the command works with.
func (a *app) dir() (*home.Home, error) {
	if a.home != "" {
		return homeAt(a.home)
	}
	dir, err := home.Default()
	if err != nil {
		return nil, err
	}
	return homeAt(dir)
}

// ownDir is dir for a command that writes there.
func (a *app) ownDir() (*home.Home, error) {
	h, err := a.dir()
	if err != nil {
		return nil, err
	}
	return h, home.Claim(h.Dir())
}

func homeAt(dir string) (*home.Home, error) {
	abs, err := absolute(dir)
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, "--home %s: %w", dir, err)
	}
	return home.At(abs), nil
}
