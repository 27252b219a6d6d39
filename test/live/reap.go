package live

import (
	"context"

	"brood/internal/base/life"
)

// reaper has the goroutines that wait for daemons; each ends with its daemon.
var reaper = life.NewGroup(context.Background())

func reap(wait func()) {
	reaper.Go("reap", func(context.Context) error { wait(); return nil })
}
