package cli

import (
	"context"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the version of this program",
		Long:    "Show the version of this program. The daemon is not asked: its version is in\n\"brood daemon status\".",
		Example: "  brood version\n  brood version --json",
		Args:    takes(0, 0),
		RunE: interruptible(func(context.Context, []string) error {
			if a.json {
				return a.value(struct {
					Version string `json:"version"`
					Go      string `json:"go"`
					OS      string `json:"os"`
					Arch    string `json:"arch"`
				}{version, runtime.Version(), runtime.GOOS, runtime.GOARCH})
			}
			return a.text("brood %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		}),
	}
}
