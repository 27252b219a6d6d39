package forks

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/edge/cli"
)

func newCopy(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "cp SRC DST",
		Short: "Copy files into or out of a sandbox",
		Long: `Copy a file, folder or symlink into or out of a sandbox, with modes and times.
One of SRC and DST is NAME:/path, the other a path here, or - for a tar stream
on standard input or output. Into a folder that exists the copy goes under its
own name; SRC/. is what the folder holds. A path here that has a colon is
written with ./ in front.

Setuid and setgid are kept on the way in, and dropped on the way out. Devices,
pipes and sockets in a folder are left out with a warning, and so are files that
go while they are copied.`,
		Example: `  brood sb cp app.py src:/data/
  brood sb cp src:/var/log ./logs
  tar c . | brood sb cp - src:/work
  brood sb cp src:/etc - | tar tv`,
		Args:              cli.Takes(2, 2),
		ValidArgsFunction: a.completeCopy,
		RunE: cli.Interruptible(func(ctx context.Context, args []string) error {
			from, into := location(args[0]), location(args[1])
			if (from.sandbox == "") == (into.sandbox == "") {
				return errs.New(errs.InvalidArgument, "one of %q and %q must be NAME:/path, and the other a path here", args[0], args[1])
			}
			c, err := a.dial(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			return a.copy(ctx, c, from, into)
		}),
	}
}

// place is a path here, or in a sandbox (or batch).
type place struct{ sandbox, path string }

// location reads NAME:/path. What begins like a path is one, colons or not; a
// qualified name (local:NAME) has a colon of its own.
func location(s string) place {
	if strings.HasPrefix(s, "/") || strings.HasPrefix(s, ".") || s == "-" {
		return place{path: s}
	}
	if i := strings.Index(s, ":/"); i > 0 && !strings.Contains(s[:i], "/") {
		return place{s[:i], s[i+1:]}
	}
	if name, path, ok := strings.Cut(s, ":"); ok && !strings.Contains(name, "/") {
		return place{name, path}
	}
	return place{path: s}
}

func (a *app) copy(ctx context.Context, c *client.Client, from, into place) error {
	done := map[string]any{}
	switch {
	case from.path == "-" && from.sandbox == "":
		r, err := c.PutTar(ctx, into.sandbox, into.path, a.In)
		if err != nil {
			return err
		}
		a.copied(client.Copied{Entries: r.GetEntries(), Bytes: r.GetBytes(), Skipped: r.GetSkipped(), SkippedTotal: r.GetSkippedTotal()}, done)
	case into.sandbox != "":
		r, err := c.CopyTo(ctx, into.sandbox, from.path, into.path)
		if err != nil {
			return err
		}
		a.copied(r, done)
	case into.path == "-":
		return a.tarOut(ctx, c, from)
	default:
		r, err := c.CopyFrom(ctx, from.sandbox, from.path, into.path)
		if err != nil {
			return err
		}
		a.copied(r, done)
	}
	if a.JSON {
		return a.Value(done)
	}
	return nil
}

// copied notes what was copied, and warns of what was not.
func (a *app) copied(r client.Copied, done map[string]any) {
	done["entries"], done["bytes"], done["skipped"] = r.Entries, r.Bytes, append([]string{}, r.Skipped...)
	a.skipped("", r)
}

// skipped warns of what was left out.
func (a *app) skipped(of string, r client.Copied) {
	for _, name := range r.Skipped {
		a.Say("warning: %sskipped %s: a device, pipe or socket, or gone meanwhile", of, name)
	}
	if more := r.SkippedTotal - uint64(len(r.Skipped)); more > 0 {
		a.Say("warning: %sskipped %d more devices, pipes, sockets and files gone meanwhile", of, more)
	}
}

// tarOut writes the tar stream; --json does not change what it is.
func (a *app) tarOut(ctx context.Context, c *client.Client, from place) error {
	r := c.GetTar(ctx, from.sandbox, from.path, false)
	defer r.Close()
	_, err := io.Copy(a.Out, r)
	return err
}
