package fake_test

import (
	"context"
	"testing"

	"brood/internal/base/life"
)

// inBackground runs f until the test ends.
func inBackground(t *testing.T, f func()) {
	t.Helper()
	g := life.NewGroup(context.Background())
	g.Go("background", func(context.Context) error { f(); return nil })
	t.Cleanup(func() {
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}
