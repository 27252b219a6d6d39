package forks

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	broodv1 "brood/api/brood/v1"
	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/edge/cli"
)

func newBatch(a *app) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "batch",
		Short: "See batches of forks again, and use their forks together",
		Long: `See batches of forks again, and use their forks together. A batch belongs to the
daemon: it goes on without the command that asked for it, and is kept for a day
after its end. Its id may be cut short as long as one batch has it.`,
		Example: `  brood batch ls
  brood batch attach b-3f0c
  brood batch exec b-3f0c -- uptime
  brood batch rm b-3f0c`,
	}, newBatchList(a), newBatchInfo(a), newBatchAttach(a), newBatchCancel(a), newBatchExec(a), newBatchLogs(a), newBatchCopy(a), newBatchRemove(a))
}

func newBatchList(a *app) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the batches",
		Long:    "List the batches that the daemon keeps, newest first.",
		Example: "  brood batch ls",
		Args:    cli.Takes(0, 0),
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) error {
			all, err := c.ListBatches(ctx)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.message(&broodv1.ListBatchesResponse{Batches: all})
			}
			var rows [][]string
			for _, b := range all {
				if quiet {
					if err := a.Text("%s\n", b.GetId()); err != nil {
						return err
					}
					continue
				}
				rows = append(rows, []string{
					b.GetId(), batchState(b), strconv.Itoa(int(b.GetTotal())), strconv.Itoa(int(b.GetOk())), strconv.Itoa(int(b.GetFailed())),
					ago(b.GetCreatedAt()), batchSources(b),
				})
			}
			if quiet {
				return nil
			}
			return cli.Table(a.Out, []string{"BATCH", "STATE", "FORKS", "READY", "FAILED", "BEGUN", "OF"}, rows)
		}),
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "ids only")
	return cmd
}

func batchState(b *broodv1.Batch) string {
	s := word(b.GetState(), "BATCH_STATE_")
	if b.GetCancelled() && b.GetState() == broodv1.BatchState_BATCH_STATE_DONE {
		s = "cancelled"
	}
	if b.GetDamaged() {
		s += ", books damaged"
	}
	return s
}

func batchSources(b *broodv1.Batch) string {
	r := b.GetRequest()
	if r.GetSource() != "" {
		return r.GetSource()
	}
	sources := map[string]bool{}
	for _, g := range r.GetGroups() {
		sources[g.GetSource()] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(sources)), " ")
}

func newBatchInfo(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "info BATCH",
		Short:             "Show a batch and its forks",
		Long:              "Show a batch and how each of its forks ended.",
		Example:           "  brood batch info b-3f0c\n  brood batch info b-3f0c --json",
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: a.complete(1, batchNames),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			r, err := c.GetBatch(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.message(r)
			}
			return a.showBatch(r)
		}),
	}
}

func (a *app) showBatch(r *broodv1.GetBatchResponse) error {
	b := r.GetBatch()
	f := [][2]string{
		{"batch", b.GetId()},
		{"state", batchState(b)},
		{"note", b.GetNote()},
		{"of", batchSources(b)},
		{"forks", fmt.Sprintf("%d: %d ready, %d failed", b.GetTotal(), b.GetOk(), b.GetFailed())},
		{"begun", ago(b.GetCreatedAt())},
	}
	if s := b.GetSummary(); s != nil {
		f = append(f, [2]string{"took", cli.Took(s.GetElapsedMs())})
		for _, h := range slices.Sorted(maps.Keys(s.GetPerHost())) {
			f = append(f, [2]string{"on " + h, fmt.Sprintf("%d ready, %d starting at once at most", s.GetPerHost()[h], s.GetPeakParallel()[h])})
		}
	}
	if err := cli.Facts(a.Out, f); err != nil || len(r.GetItems()) == 0 {
		return err
	}
	var rows [][]string
	items := slices.SortedFunc(slices.Values(r.GetItems()), func(x, y *client.ForkBatchItem) int { return cmp.Compare(x.GetIndex(), y.GetIndex()) })
	for _, i := range items {
		state, detail := "ready", cli.Took(i.GetForkMs())
		if failedItem(i) {
			state, detail = i.GetErrorCode(), cli.OneLine(i.GetError())
		}
		rows = append(rows, []string{strconv.Itoa(int(i.GetIndex())), i.GetName(), cli.OrDash(i.GetHost()), state, detail})
	}
	if err := a.Text("\n"); err != nil {
		return err
	}
	return cli.Table(a.Out, []string{"INDEX", "NAME", "ON", "STATE", ""}, rows)
}

func newBatchAttach(a *app) *cobra.Command {
	var plain bool
	cmd := &cobra.Command{
		Use:   "attach BATCH",
		Short: "See a batch from its beginning to its end",
		Long: `See a batch again from its beginning, and follow it to its end. What is shown is
what "brood sb fork-many" shows; the exit code is 1 when a fork failed, and when
what the daemon wrote down of the batch was damaged, so that forks or events may
be missing.`,
		Example:           "  brood batch attach b-3f0c\n  brood batch attach b-3f0c --json",
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: a.complete(1, batchNames),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			r, err := c.GetBatch(ctx, args[0])
			if err != nil {
				return err
			}
			b, err := c.AttachBatch(ctx, r.GetBatch().GetId(), 0)
			if err != nil {
				return err
			}
			defer b.Close()
			if note := r.GetBatch().GetNote(); note != "" {
				a.Say("batch %s: %s", b.ID(), note)
			}
			if err := a.watch(ctx, c, b, watchParams{total: r.GetBatch().GetTotal(), plain: plain, began: began(r.GetBatch())}); err != nil {
				return err
			}
			return whole(ctx, c, b.ID())
		}),
	}
	cmd.Flags().BoolVar(&plain, "plain", false, "plain lines also on a terminal")
	return cmd
}

// whole is an error when what was shown of a batch may not be all of it.
func whole(ctx context.Context, c *client.Client, id string) error {
	r, err := c.GetBatch(ctx, id) // again: it may have been another daemon's while it was watched
	if err == nil && r.GetBatch().GetDamaged() {
		return errs.New(errs.DataLoss, "batch %s may have had more than is shown: what was written down of it was damaged", id)
	}
	return err
}

func began(b *broodv1.Batch) time.Time {
	if b.GetCreatedAt() == nil {
		return time.Time{}
	}
	return b.GetCreatedAt().AsTime()
}

func newBatchCancel(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "cancel BATCH",
		Short:             "Stop what has not started of a batch",
		Long:              "Stop what has not started of a batch. Forks that are ready stay.",
		Example:           "  brood batch cancel b-3f0c",
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: a.complete(1, batchNames),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			b, err := c.CancelBatch(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.message(b)
			}
			return a.Text("%s %s: %d of %d ready\n", b.GetId(), batchState(b), b.GetOk(), b.GetTotal())
		}),
	}
}
