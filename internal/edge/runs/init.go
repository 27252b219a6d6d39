package runs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"brood/internal/base/errs"
	"brood/internal/edge/cli"
	"brood/internal/run/workspace"
)

func newInit(a *app) *cobra.Command {
	var show bool
	cmd := &cobra.Command{
		Use:   "init [FOLDER]",
		Short: "Write a brood.yaml for a repository that has none",
		Long: `Look at a repository (package.json, go.mod, Cargo.toml, Makefile and the like) and
write a brood.yaml with the tasks that are found. A repository with a turbo.json
needs none.`,
		Example: "  brood init\n  brood init --print",
		Args:    cli.Takes(0, 1),
		RunE: cli.Interruptible(func(_ context.Context, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return a.init(dir, show)
		}),
	}
	cmd.Flags().BoolVar(&show, "print", false, "write it to standard output only")
	return cmd
}

func (a *app) init(dir string, show bool) (err error) {
	text, err := workspace.Draft(dir)
	if err != nil {
		return err
	}
	if show {
		_, err := a.Out.Write(text)
		return err
	}
	path := filepath.Join(dir, "brood.yaml")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return errs.New(errs.AlreadyExists, "%s is there already", path)
	}
	if err != nil {
		return errs.New(errs.FailedPrecondition, "brood.yaml cannot be written: %w", err)
	}
	_, err = file.Write(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if a.JSON {
		return a.Value(map[string]string{"path": path})
	}
	return a.Text("wrote %s: read it, then list its tasks with \"brood run\"\n", path)
}
