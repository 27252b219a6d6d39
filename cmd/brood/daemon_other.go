//go:build !linux

package main

import (
	"context"
	"runtime"

	"brood/internal/base/errs"
	"brood/internal/edge/cli"
)

func runDaemon(context.Context, cli.DaemonParams) error {
	return errs.New(errs.Unsupported, "sandboxes run on Linux, and this is %s: run the daemon there", runtime.GOOS)
}
