package main

import (
	"context"

	"brood/internal/edge/daemon"
	"brood/internal/edge/forks"
)

func runDaemon(ctx context.Context, p forks.DaemonParams) error {
	return daemon.Run(ctx, daemon.Params{Home: p.Home, Version: p.Version, Settings: p.Settings, Log: p.Log, Ready: p.Ready})
}
