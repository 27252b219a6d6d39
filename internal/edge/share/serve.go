package share

import (
	"context"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"brood/internal/base/errs"
	"brood/internal/config"
	"brood/internal/edge/cli"
	"brood/internal/fabric/blob/server"
)

// Serve is "brood cache serve".
func Serve(a *cli.App) *cobra.Command {
	var c server.Config
	var size string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a cache for a team",
		Long: `Serve a cache that several machines share, over the Remote Execution API (gRPC).
Runs use it with BROOD_CACHE=grpc://HOST:PORT, or cache.remote in brood.yaml. Where
others than this machine can connect, $BROOD_CACHE_TOKEN is required, here and for
the runs. It serves until it is interrupted.`,
		Example: "  brood cache serve\n  BROOD_CACHE_TOKEN=... brood cache serve --listen 0.0.0.0:9092 --cert c.pem --key k.pem",
		Args:    cli.Takes(0, 0),
		RunE: cli.Interruptible(func(ctx context.Context, _ []string) error {
			return serve(ctx, a, c, size)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&c.Listen, "listen", server.DefaultListen, "`HOST:PORT` to listen on; port 0 is any free one")
	flags.StringVar(&c.Dir, "dir", "", "the `folder` that holds it, new, empty or a cache already (default: cache-server in brood's home)")
	flags.StringVar(&size, "size", "20G", "the most that it may hold")
	flags.StringVar(&c.Cert, "cert", "", "TLS certificate, a `file` (default: no TLS)")
	flags.StringVar(&c.Key, "key", "", "its key, a `file` (default: no TLS)")
	flags.BoolVar(&c.ReadOnly, "read-only", false, "answer and store nothing new")
	return cmd
}

func serve(ctx context.Context, a *cli.App, c server.Config, size string) error {
	most, err := config.ParseBytes("--size", size)
	if err != nil {
		return err
	}
	c.MaxBytes, c.Token = int64(most), os.Getenv("BROOD_CACHE_TOKEN")
	if c.Dir == "" {
		h, err := a.OwnDir()
		if err != nil {
			return err
		}
		c.Dir = filepath.Join(h.Dir(), "cache-server")
	}
	c.Ready = func(at net.Addr) {
		scheme := "grpc"
		if c.Cert != "" {
			scheme = "grpcs"
		}
		if a.JSON {
			_ = a.Value(map[string]string{"address": scheme + "://" + at.String(), "dir": c.Dir}) // the server goes on all the same
			return
		}
		a.Tell("serving %s at %s://%s; runs use it with BROOD_CACHE=%[2]s://%[3]s", c.Dir, scheme, at)
	}
	err = server.Serve(ctx, c)
	if errs.Is(err, errs.FailedPrecondition) || errs.Is(err, errs.AlreadyExists) {
		return errs.New(errs.InvalidArgument, "%w", err) // the folder: another is to be named
	}
	return err
}
