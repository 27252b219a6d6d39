//go:build !linux

package main

import (
	"context"
	"runtime"

	"brood/internal/base/errs"
	"brood/internal/edge/forks"
)

func runDaemon(context.Context, forks.DaemonParams) error {
	return errs.New(errs.Unsupported, "sandboxes run on Linux, and this is %s: run the daemon there", runtime.GOOS)
}
