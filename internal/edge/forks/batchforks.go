package forks

import (
	"context"
	"slices"

	broodv1 "brood/api/brood/v1"
	"brood/client"
	"brood/internal/base/errs"
)

// readyForks are the forks of a batch that can be used. While the batch is at
// work it waits: who means a batch means all of it.
func (a *app) readyForks(ctx context.Context, c *client.Client, id string) ([]*client.ForkBatchItem, error) {
	r, err := c.GetBatch(ctx, id)
	if err != nil {
		return nil, err
	}
	if b := r.GetBatch(); atWork(b) {
		a.Say("batch %s is at work, %d of %d forks are ready: waits for its end", b.GetId(), b.GetOk(), b.GetTotal())
		if err := awaitEnd(ctx, c, b); errs.Is(err, errs.FailedPrecondition) {
			a.Say("%s: goes on with the forks that are ready", errs.Text(err)) // another version of brood began it
		} else if err != nil {
			return nil, err
		}
		if r, err = c.GetBatch(ctx, b.GetId()); err != nil {
			return nil, err
		}
	}
	if b := r.GetBatch(); b.GetDamaged() {
		a.Say("warning: batch %s may have more forks than the %d that are known: %s", b.GetId(), len(r.GetItems()), b.GetNote())
	}
	return slices.DeleteFunc(r.GetItems(), failedItem), nil
}

func atWork(b *broodv1.Batch) bool {
	return b.GetState() == broodv1.BatchState_BATCH_STATE_RUNNING || b.GetState() == broodv1.BatchState_BATCH_STATE_CANCELLING
}

// awaitEnd reads a batch to its end.
func awaitEnd(ctx context.Context, c *client.Client, b *broodv1.Batch) error {
	rest, err := c.AttachBatch(ctx, b.GetId(), b.GetLastSequence())
	if err != nil {
		return err
	}
	defer rest.Close()
	for {
		e, err := rest.Next(ctx)
		if err != nil || e.Done != nil {
			return err
		}
	}
}
