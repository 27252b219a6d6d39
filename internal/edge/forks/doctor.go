package forks

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	daemonv1 "brood/api/cua/daemon/v1"
	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/edge/cli"
)

func newDoctor(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check what this machine can do",
		Long: `Check every requirement by trying it, and say how to fix what does not work. The
exit code is 1 when something does not work, and 0 when all that is missing can
be done without.`,
		Example: "  brood doctor\n  brood doctor --json",
		Args:    cli.Takes(0, 0),
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) error {
			status := newStatus(a.Err)
			status.set("trying everything")
			r, err := c.Doctor(ctx)
			status.clear()
			if err != nil {
				return err
			}
			if a.JSON {
				err = a.message(r)
			} else {
				err = a.showChecks(r.GetChecks())
			}
			if err != nil {
				return err
			}
			return verdict(r.GetChecks())
		}),
	}
}

// showChecks writes a line per check, and below those that are not ok what was
// seen and the fix.
func (a *app) showChecks(checks []*daemonv1.RuntimeCheck) error {
	width := 0
	for _, c := range checks {
		width = max(width, len(c.GetName()))
	}
	p := a.Palette()
	for _, c := range checks {
		mark := checkMark(p, c.GetStatus())
		detail := strings.Split(strings.TrimSpace(c.GetDetail()), "\n")
		first := strings.TrimSpace(c.GetVersion() + "  " + detail[0])
		if err := a.Text("%s\n", strings.TrimRight(mark+"  "+c.GetName()+strings.Repeat(" ", width-len(c.GetName())+2)+first, " ")); err != nil {
			return err
		}
		for _, line := range detail[1:] {
			if err := a.Text("%s%s\n", strings.Repeat(" ", width+11), strings.TrimSpace(line)); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkMark is a status in seven cells.
func checkMark(p cli.Palette, s daemonv1.CheckStatus) string {
	switch s {
	case daemonv1.CheckStatus_CHECK_STATUS_OK:
		return p.Good("ok     ")
	case daemonv1.CheckStatus_CHECK_STATUS_INSTALLABLE:
		return p.Warn("warning")
	case daemonv1.CheckStatus_CHECK_STATUS_ERROR:
		return p.Bad("error  ")
	case daemonv1.CheckStatus_CHECK_STATUS_NOT_APPLICABLE:
		return p.Faint("-      ")
	default:
		return "?      "
	}
}

func verdict(checks []*daemonv1.RuntimeCheck) error {
	var bad []string
	for _, c := range checks {
		if c.GetStatus() == daemonv1.CheckStatus_CHECK_STATUS_ERROR {
			bad = append(bad, c.GetName())
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return errs.New(errs.FailedPrecondition, "%s not work: %s", cli.Plural(len(bad), "thing")+does(len(bad)), strings.Join(bad, ", "))
}

func does(n int) string {
	if n == 1 {
		return " does"
	}
	return " do"
}
