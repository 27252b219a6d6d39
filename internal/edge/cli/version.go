package cli

import (
	"context"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersion(a *App) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the version of this program",
		Long:    "Show the version of this program. The daemon is not asked: its version is in\n\"brood daemon status\".",
		Example: "  brood version\n  brood version --json",
		Args:    Takes(0, 0),
		RunE: Interruptible(func(context.Context, []string) error {
			if a.JSON {
				return a.Value(struct {
					Version string `json:"version"`
					Go      string `json:"go"`
					OS      string `json:"os"`
					Arch    string `json:"arch"`
				}{Version, runtime.Version(), runtime.GOOS, runtime.GOARCH})
			}
			return a.Text("%s", versionLine())
		}),
	}
}

func versionLine() string {
	return fmt.Sprintf("brood %s (%s, %s/%s)\n", Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
