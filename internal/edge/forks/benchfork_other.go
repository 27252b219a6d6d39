//go:build !linux

package forks

import (
	"context"

	"brood/internal/base/errs"
)

func (a *app) benchFork(context.Context, forkBench) error {
	return errs.New(errs.Unsupported, "forks are measured on Linux")
}
