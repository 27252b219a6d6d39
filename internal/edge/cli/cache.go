package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"brood/internal/config"
	"brood/internal/run/cache"
	"brood/internal/run/cache/store"
)

func newCache(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:   "cache",
		Short: "See, shrink and share the results of tasks",
		Long: `See, shrink and share the results of tasks. The local cache is in brood's home, is
used by every run of this machine, and stays within its bound by itself.`,
		Example: "  brood cache info\n  brood cache prune --to 2G\n  brood cache serve",
	}, newCacheInfo(a), newCachePrune(a), newCacheServe(a))
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
		Args:    takes(0, 0),
		RunE: interruptible(func(ctx context.Context, _ []string) error {
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
		Args:    takes(0, 0),
		RunE: interruptible(func(ctx context.Context, _ []string) error {
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
	if a.json {
		return a.value(size)
	}
	return facts(a.out, [][2]string{{"path", size.Path}, {"results", fmt.Sprint(size.Results)}, {"size", sizeText(size.Bytes)}})
}

// sizeText is an amount of bytes for people.
func sizeText(n int64) string {
	switch {
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
