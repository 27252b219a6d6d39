package forks

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	broodv1 "brood/api/brood/v1"
	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/edge/cli"
)

func newAttach(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "attach NAME EXEC",
		Short: "See the output of what was started with exec, to its end",
		Long: `See the output of what was started with exec, such as with --detach: what is
kept of it, which is the last MiB of each stream, and then what comes, to its
end. EXEC is its id, as "brood sb execs" shows it, or the beginning of it. The
exit code is the command's own, as with exec.

Ctrl-C ends this program alone: "brood sb kill" ends the command. Only one can
watch it: who did before is let go. With --json the lines are those of exec.`,
		Example:           "  id=$(brood sb exec -d src -- make all)\n  brood sb attach src $id",
		Args:              cli.Takes(2, 2),
		ValidArgsFunction: a.completeExecs,
		RunE: cli.Interruptible(func(ctx context.Context, args []string) error {
			exit, err := a.attach(ctx, args[0], args[1])
			return a.execEnd(exit, err)
		}),
	}
}

func (a *app) attach(ctx context.Context, name, exec string) (*broodv1.ExecExit, error) {
	c, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	x, err := findExec(ctx, c, name, exec)
	if err != nil {
		return nil, err
	}
	e := c.AttachExec(name, x.GetExecId(), 0, 0)
	defer e.Close()
	if a.JSON {
		if err := a.startedEvent(x.GetExecId(), x.GetPid()); err != nil {
			return nil, err
		}
	}
	exit, err := e.Wait(ctx, a.execStreams())
	return a.exitEvent(exit, err)
}

// findExec finds what was started under an id, or the only one that begins so.
func findExec(ctx context.Context, c *client.Client, name, exec string) (*broodv1.ExecInfo, error) {
	all, err := c.ListExecs(ctx, name)
	if err != nil {
		return nil, err
	}
	var like []*broodv1.ExecInfo
	for _, x := range all {
		if x.GetExecId() == exec {
			return x, nil
		}
		if exec != "" && strings.HasPrefix(x.GetExecId(), exec) {
			like = append(like, x)
		}
	}
	switch {
	case len(like) == 1:
		return like[0], nil
	case len(like) > 1:
		return nil, errs.New(errs.InvalidArgument, "%d execs of %s begin with %.80q: write more of the id", len(like), name, exec)
	}
	return nil, errs.New(errs.NotFound, "no exec of %s is called %.80q, or its output is kept no more: \"brood sb execs %s\" lists those there are", name, exec, name)
}
