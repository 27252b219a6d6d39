package main

import (
	"context"

	"brood/internal/edge/cli"
	"brood/internal/edge/daemon"
)

func runDaemon(ctx context.Context, p cli.DaemonParams) error {
	return daemon.Run(ctx, daemon.Params{Home: p.Home, Version: p.Version, Settings: p.Settings, Log: p.Log, Ready: p.Ready})
}
