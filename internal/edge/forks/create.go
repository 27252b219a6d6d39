package forks

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	broodv1 "brood/api/brood/v1"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/edge/cli"
)

// leaveLimit bounds the wait for an interrupted creation to be taken back.
const leaveLimit = 30 * time.Second

func newCreate(a *app) *cobra.Command {
	var f createFlags
	cmd := &cobra.Command{
		Use:                   "create [flags] [IMAGE] [-- COMMAND...]",
		DisableFlagsInUseLine: true,
		Short:                 "Make a sandbox",
		Long: `Make a sandbox and wait until it is ready. Its name is printed.

IMAGE is one of:
  host             this machine's own programs, read-only, with a private layer
                   to write to (the default)
  a folder         a root filesystem, such as ./rootfs; its files are root's
                   inside
  a tar            of a root filesystem, plain or compressed, such as app.tar.gz;
                   its files keep their owners
  sha256:DIGEST    one that "brood image ls" shows

COMMAND is what runs in it; without one it is the image's own, or nothing.

What --mount shows can be read and written inside, with :ro only read. What is
written stays in the sandbox, and its forks: it never reaches this machine's
folder. "brood sb cp" brings files back. A checkpoint does not hold what is
mounted: its forks need this machine's folder, and see its files as they are
then. A folder that was read inside keeps the list of files that it had, and a
file that was opened stays the one it was when another takes its name.

Forks have no --ttl and no --idle-timeout.`,
		Example: `  brood sb create host --name src -- python3 -u -c 'import time; time.sleep(9999)'
  brood sb create ./rootfs --name web --port 8000 --wait http:8000/ -- ./serve
  brood sb create --memory 512M --cpus 2 --mount "$PWD:/src:ro" --ttl 1h`,
		Args: func(cmd *cobra.Command, args []string) error {
			if before, _ := split(cmd, args); len(before) > 1 {
				return cli.WrongUse(cmd, "%q is one argument too many (a command goes after --)", before[1])
			} else if len(before) == 1 && before[0] == "" {
				return cli.WrongUse(cmd, "IMAGE is empty")
			}
			return nil
		},
		ValidArgsFunction: a.completeImages,
	}
	f.register(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		before, command := split(cmd, args)
		image := ""
		if len(before) == 1 {
			image = before[0]
		}
		req, err := f.request(image, command)
		if err != nil {
			return err
		}
		ctx, stop := cli.Interrupts(cmd.Context())
		defer stop()
		return a.create(ctx, req)
	}
	return cmd
}

// split parts the arguments before -- from those after it.
func split(cmd *cobra.Command, args []string) (before, after []string) {
	if n := cmd.ArgsLenAtDash(); n >= 0 {
		return args[:n], args[n:]
	}
	return args, nil
}

func (a *app) create(ctx context.Context, req *broodv1.CreateSandboxRequest) error {
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	status := newStatus(a.Err)
	begun := false
	r, err := c.CreateSandbox(ctx, req, func(p *daemonv1.CreateSandboxProgress) {
		begun = true
		status.set(createStatus(p))
	})
	status.clear()
	if err != nil {
		if begun && ctx.Err() != nil {
			if leaveErr := leave(ctx, c, req.GetCreate().GetName()); leaveErr != nil {
				return errs.New(errs.Canceled, "interrupted; take back sandbox %s: %s", req.GetCreate().GetName(), leaveErr)
			}
		}
		return err
	}
	if a.JSON {
		return a.message(r)
	}
	for _, w := range r.GetWarnings() {
		a.Say("warning: %s", w)
	}
	return a.Text("%s\n", r.GetSandbox().GetName())
}

func createStatus(p *daemonv1.CreateSandboxProgress) string {
	s := p.GetPhase()
	if p.GetDetail() != "" {
		s += ": " + p.GetDetail()
	}
	if p.Fraction != nil {
		s += fmt.Sprintf(" (%.0f %%)", 100*p.GetFraction())
	}
	return s
}

// leave waits until an interrupted creation has left nothing behind. One that
// was ready in the very moment is removed: its name was never printed.
func leave(ctx context.Context, c *client.Client, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
	defer cancel()
	for {
		under, err := c.CancelCreateSandbox(ctx, name)
		if err != nil {
			return err
		}
		s, err := c.GetSandbox(ctx, name)
		if errs.Is(err, errs.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if !under && s.GetState() == daemonv1.SandboxState_SANDBOX_STATE_RUNNING {
			if err := c.DeleteSandbox(ctx, name); err != nil && !errs.Is(err, errs.NotFound) {
				return err
			}
		}
		if err := pause(ctx, startPause); err != nil {
			return errs.New(errs.DeadlineExceeded, "it is still there after %s", leaveLimit)
		}
	}
}

// status is one line on a terminal that shows what is being done, and nothing
// elsewhere.
type status struct {
	w     *os.File // nil: not a terminal
	shown bool
}

func newStatus(w any) *status {
	f, ok := w.(*os.File)
	if !ok || !cli.IsTerminal(f) {
		return &status{}
	}
	return &status{w: f}
}

func (s *status) set(text string) {
	if s.w != nil {
		width, _ := cli.Size(s.w)
		fmt.Fprintf(s.w, "\r\x1b[K%s", cli.Clip(cli.OneLine(text), width-1))
		s.shown = true
	}
}

func (s *status) clear() {
	if s.shown {
		fmt.Fprint(s.w, "\r\x1b[K")
		s.shown = false
	}
}
