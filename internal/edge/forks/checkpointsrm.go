package forks

import (
	"context"
	"errors"

	"brood/client"
)

// removeCheckpoints removes checkpoints one after the other: a child before
// its parent, when they are named so. A failure stops no other.
func (a *app) removeCheckpoints(ctx context.Context, c *client.Client, names []string, whenUnused bool) error {
	removed, deferred := []string{}, []string{}
	var failed error
	for _, name := range names {
		later, err := c.DeleteCheckpoint(ctx, name, whenUnused)
		switch {
		case err != nil:
			failed = errors.Join(failed, about("remove "+name, err))
		case later:
			deferred = append(deferred, name)
		default:
			removed = append(removed, name)
		}
	}
	if a.JSON {
		return errors.Join(failed, a.Value(map[string][]string{"removed": removed, "deferred": deferred}))
	}
	for _, name := range removed {
		failed = errors.Join(failed, a.Text("%s\n", name))
	}
	for _, name := range deferred {
		failed = errors.Join(failed, a.Text("%s goes when it is no longer used\n", name))
	}
	return failed
}
