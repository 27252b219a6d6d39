package forks

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	broodv1 "brood/api/brood/v1"
	"brood/client"
	"brood/internal/edge/cli"
	"brood/internal/home"
)

func newCheckpoints(a *app) *cobra.Command {
	var all bool
	list := func(ctx context.Context, _ []string) error { return a.listCheckpoints(ctx, all) }
	ls := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the checkpoints",
		Long:    "List the checkpoints of this machine, by name.",
		Example: "  brood sb checkpoints ls\n  brood sb checkpoints ls --all",
		Args:    cli.Takes(0, 0),
		RunE:    cli.Interruptible(list),
	}
	cmd := cli.Group(&cobra.Command{
		Use:     "checkpoints",
		Aliases: []string{"cps"},
		Short:   "List and manage checkpoints",
		Long:    "List and manage checkpoints. Without a command they are listed.",
		Example: "  brood sb checkpoints\n  brood sb checkpoints info base",
	}, ls, newCheckpointInfo(a), newCheckpointRename(a), newCheckpointRemove(a), newCheckpointVerify(a),
		newCheckpointPin(a, "pin", "Keep a checkpoint from being removed", (*client.Client).PinCheckpoint),
		newCheckpointPin(a, "unpin", "Let a checkpoint be removed again", (*client.Client).UnpinCheckpoint))
	for _, c := range []*cobra.Command{cmd, ls} {
		c.Flags().BoolVar(&all, "all", false, "also those that were made for one batch")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return cli.UnknownCommand(cmd, args[0])
		}
		return cli.Interruptible(list)(cmd, args)
	}
	return cmd
}

func (a *app) listCheckpoints(ctx context.Context, includeTemporary bool) error {
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	all, err := c.ListCheckpoints(ctx, includeTemporary)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.message(&broodv1.ListCheckpointsResponse{Checkpoints: all})
	}
	var rows [][]string
	for _, cp := range all {
		size, alone := home.Bytes(cp.GetSizeBytes()), home.Bytes(cp.GetUniqueBytes())
		if cp.GetDamaged() != "" {
			size, alone = "-", "-"
			a.Say("warning: checkpoint %s cannot be read: %s", cp.GetName(), cp.GetDamaged())
		}
		rows = append(rows, []string{
			cp.GetName(), cli.OrDash(cli.Short(cp.GetDigest())), cli.OrDash(cp.GetSource()), size, alone,
			ago(cp.GetCreatedAt()), cli.OrDash(strings.Join(marks(cp), ", ")),
		})
	}
	return cli.Table(a.Out, []string{"NAME", "DIGEST", "SOURCE", "SIZE", "ALONE", "MADE", "MARKS"}, rows)
}

// marks are what is special about a checkpoint.
func marks(cp *broodv1.Checkpoint) []string {
	var m []string
	for _, mark := range []struct {
		is   bool
		name string
	}{
		{cp.GetDamaged() != "", "damaged"},
		{cp.GetPinned(), "pinned"},
		{cp.GetDamaged() == "" && !cp.GetHasMemory(), "disk only"},
		{cp.GetTemporary(), "for a batch"},
		{cp.GetCopy(), "copy"},
		{cp.GetDeleteWhenUnused(), "goes when unused"},
	} {
		if mark.is {
			m = append(m, mark.name)
		}
	}
	return m
}

func newCheckpointInfo(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "info NAME",
		Short:             "Show all that is known of a checkpoint",
		Long:              "Show all that is known of a checkpoint: what it was made of, what builds on it,\nthe forks of it that exist, its files.",
		Example:           "  brood sb checkpoints info base",
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: a.complete(1, checkpointNames),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			r, err := c.GetCheckpoint(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.message(r)
			}
			return cli.Facts(a.Out, checkpointFacts(r))
		}),
	}
}

func checkpointFacts(r *broodv1.GetCheckpointResponse) [][2]string {
	cp := r.GetCheckpoint()
	memory := "a fork holds its own"
	if cp.GetSharedMemory() {
		memory = "forks share it until they write to it"
	}
	if !cp.GetHasMemory() {
		memory = "none: forks start the command"
	}
	f := [][2]string{
		{"name", cp.GetName()},
		{"digest", cp.GetDigest()},
		{"source", cp.GetSource()},
		{"image", cp.GetImage()},
		{"base", cli.Short(cp.GetBaseDigest())},
		{"driver", cp.GetDriver()},
		{"runtime", cli.Short(cp.GetRuntimeHash())},
		{"size", home.Bytes(cp.GetSizeBytes())},
		{"free without it", home.Bytes(cp.GetUniqueBytes())},
		{"memory", memory},
		{"cpus", limit(uint64(cp.GetCpus()), "")},
		{"counted memory", limit(cp.GetMemoryMb(), " MiB")},
		{"marks", strings.Join(marks(cp), ", ")},
		{"held on", cp.GetHost()},
		{"made", ago(cp.GetCreatedAt())},
		{"used", ago(cp.GetUsedAt())},
	}
	for _, p := range r.GetParents() {
		f = append(f, [2]string{"parent", cli.OrDash(p.GetName()) + " " + cli.Short(p.GetDigest())})
	}
	f = append(f, [2]string{"children", strings.Join(r.GetChildren(), " ")}, [2]string{"forks", strings.Join(r.GetForks(), " ")})
	for _, file := range r.GetFiles() {
		f = append(f, [2]string{"file", file.GetPath() + " " + home.Bytes(file.GetSize())})
	}
	return f
}

func newCheckpointRename(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "rename NAME NEW",
		Short:             "Give a checkpoint another name",
		Long:              "Give a checkpoint another name. Its digest and its forks stay.",
		Example:           "  brood sb checkpoints rename base base-old",
		Args:              cli.Takes(2, 2),
		ValidArgsFunction: a.complete(1, checkpointNames),
		RunE: cli.Interruptible(func(ctx context.Context, args []string) error {
			return a.changeCheckpoint(ctx, func(c *client.Client) (*client.Checkpoint, error) { return c.RenameCheckpoint(ctx, args[0], args[1]) })
		}),
	}
}

func newCheckpointPin(a *app, name, short string, change func(*client.Client, context.Context, string) (*client.Checkpoint, error)) *cobra.Command {
	return &cobra.Command{
		Use:               name + " NAME",
		Short:             short,
		Long:              short + ".",
		Example:           "  brood sb checkpoints " + name + " base",
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: a.complete(1, checkpointNames),
		RunE: cli.Interruptible(func(ctx context.Context, args []string) error {
			return a.changeCheckpoint(ctx, func(c *client.Client) (*client.Checkpoint, error) { return change(c, ctx, args[0]) })
		}),
	}
}

func (a *app) changeCheckpoint(ctx context.Context, change func(*client.Client) (*client.Checkpoint, error)) error {
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	cp, err := change(c)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.message(cp)
	}
	return a.Text("%s\n", cp.GetName())
}

func newCheckpointRemove(a *app) *cobra.Command {
	var whenUnused bool
	cmd := &cobra.Command{
		Use:               "rm NAME...",
		Aliases:           []string{"remove"},
		Short:             "Remove checkpoints",
		Long:              "Remove checkpoints. One that is pinned or in use is refused, naming what uses it.",
		Example:           "  brood sb checkpoints rm base\n  brood sb checkpoints rm base --when-unused",
		Args:              cli.Takes(1, -1),
		ValidArgsFunction: a.complete(-1, checkpointNames),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			return a.removeCheckpoints(ctx, c, args, whenUnused)
		}),
	}
	cmd.Flags().BoolVar(&whenUnused, "when-unused", false, "remove one that is in use as soon as it is not")
	return cmd
}
