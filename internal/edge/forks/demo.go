package forks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	broodv1 "brood/api/brood/v1"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/edge/cli"
)

// demoProgram is a real program that needs nothing but a shell: it works for a
// while to come to a number that it keeps in memory, then answers questions
// from it. A copy that began anew would have to work again, and could not
// answer at once.
const demoProgram = `mkfifo /tmp/ask /tmp/answer
i=0 sum=7
while [ $i -lt 400000 ]; do i=$((i+1)) sum=$(((sum*31+i)%1000003)); done
: > /tmp/ready
asked=0
while read q < /tmp/ask; do
  asked=$((asked+1))
  echo "$(uname -n) $sum $asked" > /tmp/answer
done`

const demoSource, demoCheckpoint, demoPrefix = "warm", "saved", "copy"

func newDemo(a *app) *cobra.Command {
	var count uint32
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Save a running program and fork it, to see it work",
		Long: `Start a program in a sandbox of this machine's own root, let it work until it
has something in memory, save it while it runs, and fork it. Each fork answers
from the same memory under its own name; the times are shown beside those of a
cold start. A daemon of its own in a temporary folder does the work, and nothing
is left of it.`,
		Example: "  brood demo\n  brood demo --count 64",
		Args:    cli.Takes(0, 0),
		RunE: cli.Interruptible(func(ctx context.Context, _ []string) error {
			if count == 0 {
				return errs.New(errs.InvalidArgument, "--count 0: give at least 1")
			}
			return a.demo(ctx, count)
		}),
	}
	cmd.Flags().Uint32Var(&count, "count", 16, "how many forks")
	return cmd
}

// demoResult is what the demo saw, for programs.
type demoResult struct {
	ColdStartMS  uint64     `json:"cold_start_ms"`
	CheckpointMS uint64     `json:"checkpoint_ms"`
	PausedMS     uint64     `json:"paused_ms"`
	SizeBytes    uint64     `json:"size_bytes"`
	Forks        []demoFork `json:"forks"`
	ElapsedMS    uint64     `json:"elapsed_ms"`
	Wrong        int        `json:"wrong"` // forks that did not answer as they should
}

type demoFork struct {
	Name   string `json:"name"`
	ForkMS uint64 `json:"fork_ms"`
	Answer string `json:"answer"`
	OK     bool   `json:"ok"`
}

// demo runs the demo in a home of its own.
func (a *app) demo(ctx context.Context, count uint32) (err error) {
	dir, err := os.MkdirTemp("", "brood-demo-")
	if err != nil {
		return err
	}
	own := *a
	own.Home, own.Err = dir, io.Discard // that a daemon was started is the demo's own business
	c, err := own.dial(ctx)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { err = errors.Join(err, own.undoDemo(ctx, c, dir)) }()
	r, err := own.showDemo(ctx, c, count)
	if err != nil {
		return err
	}
	if a.JSON {
		err = a.Value(r)
	}
	if r.Wrong > 0 {
		err = errors.Join(err, errs.New(errs.FailedPrecondition, "%d of %d forks did not answer as they should", r.Wrong, count))
	}
	return err
}

// undoDemo removes every sandbox, the daemon and the folder.
func (a *app) undoDemo(ctx context.Context, c *client.Client, dir string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
	defer cancel()
	defer c.Close()
	list, err := c.ListSandboxes(ctx)
	all := list.GetSandboxes()
	results := life.Each(ctx, len(all), 4, func(ctx context.Context, i int) error { return c.DeleteSandbox(ctx, all[i].GetName()) })
	err = errors.Join(append(results, err)...)
	_, stopErr := a.stop(ctx)
	return errors.Join(err, stopErr, os.RemoveAll(dir))
}

// showDemo does what the demo shows and tells it as it happens.
func (a *app) showDemo(ctx context.Context, c *client.Client, count uint32) (demoResult, error) {
	var r demoResult
	a.Tell("1  a program starts in a sandbox and works until it has something in memory")
	began := time.Now()
	_, err := c.CreateSandbox(ctx, &broodv1.CreateSandboxRequest{
		Create: &daemonv1.CreateSandboxRequest{
			Name: demoSource, Image: "host", Command: []string{"/bin/sh", "-c", demoProgram}, ReadyTimeout: durationpb.New(2 * time.Minute),
		},
		WaitForCommands: []*broodv1.CommandProbe{{Argv: []string{"/bin/sh", "-c", "test -e /tmp/ready"}}},
	}, nil)
	if err != nil {
		return r, err
	}
	r.ColdStartMS = uint64(time.Since(began).Milliseconds())
	first, err := askDemo(ctx, c, demoSource)
	if err != nil {
		return r, err
	}
	a.Tell("   cold start %s; it says: %s", cli.Took(r.ColdStartMS), first)
	cp, err := c.CreateCheckpoint(ctx, demoSource, demoCheckpoint, client.CheckpointOptions{})
	if err != nil {
		return r, err
	}
	r.CheckpointMS, r.PausedMS, r.SizeBytes = cp.GetElapsedMs(), cp.GetPausedMs(), cp.GetCheckpoint().GetSizeBytes()
	a.Tell("2  saved while it runs: %.1f MB in %s, it stood still for %s", float64(r.SizeBytes)/1e6, cli.Took(r.CheckpointMS), cli.Took(r.PausedMS))
	a.Tell("3  forked %d times; each goes on from the same memory, under its own name", count)
	if err := a.forkDemo(ctx, c, count, strings.Fields(first)[1], &r); err != nil {
		return r, err
	}
	last, err := askDemo(ctx, c, demoSource)
	if err != nil {
		return r, err
	}
	a.Tell("4  the first one never stopped; it says: %s", last)
	times := forkTimes(r.Forks)
	a.Tell("\n   cold start %8s  %s", cli.Took(r.ColdStartMS), length(r.ColdStartMS, r.ColdStartMS))
	a.Tell("   one fork   %8s  %s", cli.Took(times[len(times)/2]), length(times[len(times)/2], r.ColdStartMS))
	a.Tell("   (%d forks in %s, median and at most 4 at once; a fork is ready with its identity confirmed)", count, cli.Took(r.ElapsedMS))
	return r, nil
}

// forkDemo forks the checkpoint and asks each fork as soon as it is ready.
func (a *app) forkDemo(ctx context.Context, c *client.Client, count uint32, sum string, r *demoResult) error {
	b, err := c.ForkMany(ctx, demoCheckpoint, count, &client.ForkManyOptions{NamePrefix: demoPrefix})
	if err != nil {
		return err
	}
	defer b.Close()
	for ev, err := range b.Events(ctx) {
		if err != nil {
			return err
		}
		if ev.Done != nil {
			r.ElapsedMS = ev.Done.GetElapsedMs()
		}
		if ev.Item == nil {
			continue
		}
		f := demoFork{Name: ev.Item.GetName(), ForkMS: ev.Item.GetForkMs(), Answer: ev.Item.GetError()}
		if ev.Item.GetError() == "" {
			if f.Answer, err = askDemo(ctx, c, f.Name); err != nil {
				return err
			}
			f.OK = f.Answer == fmt.Sprintf("%s %s 2", f.Name, sum)
		}
		if !f.OK {
			r.Wrong++
		}
		r.Forks = append(r.Forks, f)
		a.Tell("   %-10s %8s  says: %s", f.Name, cli.Took(f.ForkMS), f.Answer)
	}
	return nil
}

// askDemo asks the program in a sandbox what it has in memory.
func askDemo(ctx context.Context, c *client.Client, name string) (string, error) {
	var out, complaint bytes.Buffer
	exit, err := c.Exec(ctx, name, client.ExecOptions{Argv: []string{"/bin/sh", "-c", "echo q > /tmp/ask; cat /tmp/answer"}}, client.Streams{Out: &out, Err: &complaint})
	if err != nil {
		return "", err
	}
	answer := strings.TrimSpace(out.String())
	if exit.GetCode() != 0 || len(strings.Fields(answer)) != 3 {
		return "", errs.New(errs.FailedPrecondition, "the program in %s answered %q (status %d) %s%s", name, answer, exit.GetCode(), complaint.String(), exit.GetError())
	}
	return answer, nil
}

func forkTimes(forks []demoFork) []uint64 {
	times := make([]uint64, len(forks))
	for i, f := range forks {
		times[i] = f.ForkMS
	}
	slices.Sort(times)
	return times
}

// length is a time as a length, the whole being 48 characters.
func length(ms, whole uint64) string {
	return strings.Repeat("█", int(max(1, 48*ms/max(whole, 1))))
}
