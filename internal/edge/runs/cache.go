package runs

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"brood/internal/config"
	"brood/internal/edge/cli"
	"brood/internal/run/cache"
	"brood/internal/run/cache/store"
)

func newCache(a *app, serve *cobra.Command) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "cache",
		Short: "See, shrink and share the results of tasks",
		Long: `See, shrink and share the results of tasks. The local cache is in brood's home, is
used by every run of this machine, and stays within its bound by itself.`,
		Example: "  brood cache info\n  brood cache prune --to 2G\n  brood cache serve",
	}, newCacheInfo(a), newCachePrune(a), serve)
}

// cacheSize is what the local cache holds.
type cacheSize struct {
	Path    string `json:"path"`
	Results int64  `json:"results"`
	Bytes   int64  `json:"bytes"`
}

func newCacheInfo(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "info",
		Short:   "Show where the local cache is and what it holds",
		Long:    "Show where the local cache is and how much it holds.",
		Example: "  brood cache info\n  brood cache info --json",
		Args:    cli.Takes(0, 0),
		RunE: cli.Interruptible(func(ctx context.Context, _ []string) error {
			dir, err := a.cacheDir()
			if err != nil {
				return err
			}
			u, err := cache.Count(ctx, dir)
			if err != nil {
				return err
			}
			return a.tellCache(dir, u)
		}),
	}
}

func newCachePrune(a *app) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:     "prune",
		Short:   "Drop what was unused for longest",
		Long:    "Drop the results that were unused for longest, until the local cache holds no more\nthan is said.",
		Example: "  brood cache prune --to 2G\n  brood cache prune --to 0",
		Args:    cli.Takes(0, 0),
		RunE: cli.Interruptible(func(ctx context.Context, _ []string) error {
			limit := uint64(cache.DefaultMaxBytes)
			if to != "" {
				var err error
				if limit, err = config.ParseBytes("--to", to); err != nil {
					return err
				}
			}
			dir, err := a.cacheDir()
			if err != nil {
				return err
			}
			u, err := cache.Sweep(ctx, dir, int64(limit))
			if err != nil {
				return err
			}
			return a.tellCache(dir, u)
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "the `size` to shrink to, such as 2G (default: the bound, 10 GB)")
	return cmd
}

func (a *app) tellCache(dir string, u store.Usage) error {
	size := cacheSize{Path: dir, Results: int64(u.Entries), Bytes: u.Bytes}
	if a.JSON {
		return a.Value(size)
	}
	return cli.Facts(a.Out, [][2]string{{"path", size.Path}, {"results", fmt.Sprint(size.Results)}, {"size", cli.SizeText(size.Bytes)}})
}
