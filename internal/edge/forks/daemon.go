package forks

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/config"
	"brood/internal/edge/cli"
	"brood/internal/home"
	"brood/internal/wire"

	daemonv1 "brood/api/cua/daemon/v1"
)

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

func newDaemon(a *app) *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use:   "daemon",
		Short: "Run and control the daemon",
		Long: `The daemon owns the sandboxes of this machine: one daemon for each home folder.
Commands that need it start it by themselves. It may be stopped at any time:
sandboxes run on, and the next daemon takes them over.

Without a command it is run in the foreground, as "brood daemon run" does.`,
		Example: `  brood daemon
  brood daemon status
  brood daemon restart`,
	}, newDaemonRun(a), newDaemonStart(a), newDaemonStop(a), newDaemonRestart(a), newDaemonStatus(a))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return cli.UnknownCommand(cmd, args[0])
		}
		return cli.Interruptible(func(ctx context.Context, _ []string) error { return a.serve(ctx, false) })(cmd, args)
	}
	return cmd
}

func newDaemonRun(a *app) *cobra.Command {
	var background bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon in the foreground",
		Long: `Run the daemon in the foreground until it is interrupted or told to stop. It
logs to standard error. Settings come from config.yaml in the home folder and
from BROOD_* in the environment.`,
		Example: "  brood daemon run\n  BROOD_LOG_LEVEL=debug brood daemon run",
		Args:    cli.Takes(0, 0),
		RunE:    cli.Interruptible(func(ctx context.Context, _ []string) error { return a.serve(ctx, background) }),
	}
	cmd.Flags().BoolVar(&background, "background", false, "started by another command")
	_ = cmd.Flags().MarkHidden("background") // the flag exists
	return cmd
}

// serve runs the daemon in this process.
func (a *app) serve(ctx context.Context, background bool) error {
	h, err := a.Dir()
	if err != nil {
		return err
	}
	settings, err := config.Load(h.Dir(), os.Environ())
	if err != nil {
		return err
	}
	var outErr error
	err = a.daemon(ctx, DaemonParams{
		Home: h.Dir(), Version: cli.Version, Settings: settings, Log: a.Err,
		Ready: func(d wire.Discovery) {
			if !background {
				outErr = a.ready(d)
			}
		},
	})
	switch {
	case background && errs.Is(err, errs.AlreadyExists):
		return &cli.ExitError{Code: exitTaken, Err: err}
	case errs.Is(err, errs.AlreadyExists):
		return errs.New(errs.AlreadyExists, "%s has a daemon: stop it with \"brood daemon stop\" (%w)", h.Dir(), err)
	case errs.Is(err, errs.Canceled) && ctx.Err() != nil:
		err = nil // told to stop: that is how it ends
	}
	return errors.Join(err, outErr)
}

func (a *app) ready(d wire.Discovery) error {
	if a.JSON {
		d.Token = "" // for those who may read daemon.json
		return a.Value(d)
	}
	where := d.SocketPath
	if d.LoopbackURL != "" {
		where += " and " + d.LoopbackURL
	}
	return a.Text("brood %s listens on %s\n", d.Version, where)
}

func newDaemonStart(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "start",
		Short:   "Start the daemon in the background, unless it runs",
		Long:    "Start the daemon in the background, unless it runs, and wait until it answers.",
		Example: "  brood daemon start",
		Args:    cli.Takes(0, 0),
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) error {
			return a.showDaemon(c.Info())
		}),
	}
}

func newDaemonStop(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "stop",
		Short:   "Stop the daemon; sandboxes run on",
		Long:    "Stop the daemon and wait until it is gone. Sandboxes run on, and the next daemon\ntakes them over. It is no error when none runs. One that does not answer is ended\nwith a signal.",
		Example: "  brood daemon stop",
		Args:    cli.Takes(0, 0),
		RunE: cli.Interruptible(func(ctx context.Context, _ []string) error {
			pid, err := a.stop(ctx)
			switch {
			case err != nil:
				return err
			case a.JSON:
				return a.Value(map[string]uint32{"stopped_pid": pid})
			case pid == 0:
				return a.Text("no daemon runs\n")
			}
			return a.Text("stopped the daemon (pid %d)\n", pid)
		}),
	}
}

// stop ends the daemon and waits until its lock is free: nothing else says
// surely that it is gone. It returns the daemon's pid, 0 when none ran.
func (a *app) stop(ctx context.Context) (uint32, error) {
	h, err := a.Dir()
	if err != nil {
		return 0, err
	}
	c, err := a.reachHolder(ctx, patience{answerNotice, stopPatience})
	if isSilent(err) {
		return a.end(ctx, h)
	}
	if err != nil || c == nil {
		return 0, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := c.Shutdown(ctx); err != nil && !errs.Is(err, errs.Unavailable) { // it may be gone before it has answered
		return 0, err
	}
	return c.Info().GetPid(), awaitUnlocked(ctx, h, int(c.Info().GetPid()))
}

// awaitUnlocked waits until a daemon's lock is free, or another's: somebody who
// waits for a daemon may have started the next one at once.
func awaitUnlocked(ctx context.Context, h *home.Home, daemon int) error {
	for {
		held, err := h.Held("daemon")
		if err != nil || !held {
			return err
		}
		if pid, _ := h.Signature("daemon"); pid != 0 && pid != daemon {
			return nil
		}
		if err := pause(ctx, startPause); err != nil {
			return errs.New(errs.CodeOf(err), "the daemon (pid %d) was told to stop and still runs: see %s (%w)", daemon, logFile(h), err)
		}
	}
}

func newDaemonRestart(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "restart",
		Short:   "Stop the daemon and start this brood's; sandboxes run on",
		Long:    "Stop the daemon, when one runs, and start this program as the new one. Sandboxes\nand batches go on.",
		Example: "  brood daemon restart",
		Args:    cli.Takes(0, 0),
		RunE: cli.Interruptible(func(ctx context.Context, _ []string) error {
			if _, err := a.stop(ctx); err != nil {
				return err
			}
			c, err := a.start(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			return a.showDaemon(c.Info())
		}),
	}
}

func newDaemonStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Show the daemon",
		Long:    "Show the daemon. It is not started: without one the exit code is 5.",
		Example: "  brood daemon status\n  brood daemon status --json",
		Args:    cli.Takes(0, 0),
		RunE: cli.Interruptible(func(ctx context.Context, _ []string) error {
			c, err := a.reachHolder(ctx, patience{answerNotice, stopPatience}) // who asks how it is is told soon
			if err == nil && c == nil {
				c, err = a.reach(ctx) // which says where none answers
			}
			if err != nil {
				return err
			}
			defer c.Close()
			a.compare(c.Info())
			return a.showDaemon(c.Info())
		}),
	}
}

// showDaemon shows who answers. The token stays in daemon.json.
func (a *app) showDaemon(d *daemonv1.GetInfoResponse) error {
	d.LoopbackToken = ""
	if a.JSON {
		return a.message(d)
	}
	return cli.Facts(a.Out, [][2]string{
		{"version", d.GetVersion()},
		{"pid", plain(d.GetPid())},
		{"socket", d.GetSocketPath()},
		{"loopback", d.GetLoopbackUrl()},
		{"program", d.GetExecutable()},
		{"started", ago(d.GetStartedAt())},
	})
}
