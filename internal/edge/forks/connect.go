package forks

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	daemonv1 "brood/api/cua/daemon/v1"
	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/edge/cli"
)

// connected runs an action that has a client of the daemon for as long as it
// runs.
func (a *app) connected(f func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return cli.Interruptible(func(ctx context.Context, args []string) error {
		c, err := a.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		return f(ctx, c, args)
	})
}

// dial reaches the daemon; it starts one when none answers.
func (a *app) dial(ctx context.Context) (*client.Client, error) {
	c, err := a.reach(ctx)
	if absent(err) {
		c, err = a.start(ctx)
	}
	if err != nil {
		return nil, err
	}
	a.compare(c.Info())
	c.WhenGone(a.restart)
	return c, nil
}

// reach reaches the daemon that there is.
func (a *app) reach(ctx context.Context) (*client.Client, error) {
	return a.reachIn(ctx, patience{answerNotice, answerLimit})
}

// absent reports whether there is no daemon. A discovery file that cannot be
// read was left by none that lives: a new one writes it anew.
func absent(err error) bool {
	return (errs.Is(err, errs.Unavailable) || errs.Is(err, errs.DataLoss)) && !isSilent(err)
}

// compare says that the daemon is another brood than this one. It is said
// where it does not disturb a program that reads the output.
func (a *app) compare(d *daemonv1.GetInfoResponse) {
	const fix = `restart it with "brood daemon restart"; sandboxes live on`
	switch {
	case d.GetVersion() != cli.Version:
		a.Say("the daemon is brood %s and this is brood %s: %s", cli.OrDash(d.GetVersion()), cli.Version, fix)
	case a.replaced(d):
		a.Say("the daemon runs a program that was replaced since (%s): %s", d.GetExecutable(), fix)
	}
}

// replaced reports whether the daemon runs another build of this program: an
// earlier state of this very file, or another of the programs of its home,
// which are named by their content.
func (a *app) replaced(d *daemonv1.GetInfoResponse) bool {
	own, err := os.Executable()
	if err == nil {
		own, err = filepath.EvalSymlinks(own)
	}
	if err != nil {
		return false
	}
	h, err := a.Dir()
	if err != nil {
		return false
	}
	if filepath.Dir(own) == h.Programs() && filepath.Dir(d.GetExecutable()) == h.Programs() {
		return own != d.GetExecutable()
	}
	if own != d.GetExecutable() {
		return false
	}
	st, err := os.Stat(own)
	return err == nil && d.GetBuildId() != fmt.Sprintf("%s-%x-%x", cli.Version, st.Size(), st.ModTime().UnixNano())
}
