package forks

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	broodv1 "brood/api/brood/v1"
	"brood/client"
	"brood/internal/edge/cli"
	"brood/internal/home"
)

func newCheckpointVerify(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "verify NAME...",
		Short: "Check that checkpoints are whole",
		Long: `Read all of a checkpoint and compare it with what was written when it was made.
A file that differs is named, and the exit code is that of lost data (1).

A fork reads the small files, and of the memory looks at the size alone, since
reading it would take longer than the fork: bytes of it that a disk has changed
are found here.`,
		Example:           "  brood sb checkpoints verify base",
		Args:              cli.Takes(1, -1),
		ValidArgsFunction: a.complete(-1, checkpointNames),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			return a.verifyCheckpoints(ctx, c, args)
		}),
	}
}

// verified is one line of --json.
type verified struct {
	Name  string `json:"name"`
	Files uint32 `json:"files"`
	Bytes uint64 `json:"bytes"`
}

// verifyCheckpoints verifies one after the other: each fills the machine. A
// failure stops no other.
func (a *app) verifyCheckpoints(ctx context.Context, c *client.Client, names []string) error {
	whole := []verified{}
	var failed error
	for _, name := range names {
		status := newStatus(a.Err)
		r, err := c.VerifyCheckpoint(ctx, name, func(p *broodv1.VerifyCheckpointProgress) {
			status.set(fmt.Sprintf("verifying %s: %s of %s", name, home.Bytes(p.GetBytesDone()), home.Bytes(p.GetBytesTotal())))
		})
		status.clear()
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		whole = append(whole, verified{Name: name, Files: r.GetFiles(), Bytes: r.GetBytes()})
	}
	if a.JSON {
		return errors.Join(failed, a.Value(map[string][]verified{"verified": whole}))
	}
	for _, v := range whole {
		failed = errors.Join(failed, a.Text("%s is whole: %s, %s\n", v.Name, cli.Plural(uint64(v.Files), "file"), home.Bytes(v.Bytes)))
	}
	return failed
}
