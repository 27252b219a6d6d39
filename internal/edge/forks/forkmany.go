package forks

import (
	"context"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/config"
	"brood/internal/edge/cli"
)

func newForkMany(a *app) *cobra.Command {
	var f forkManyFlags
	cmd := &cobra.Command{
		Use:                   "fork-many [flags] SOURCE COUNT [-- COMMAND...]",
		DisableFlagsInUseLine: true,
		Short:                 "Fork a checkpoint or a sandbox many times",
		Long: `Start COUNT sandboxes that go on from SOURCE, a checkpoint or else a sandbox;
checkpoint:NAME and sandbox:NAME say which. A sandbox is saved once for the
batch, and that goes with the last of its forks. Several sources at once are
named with --group instead.

Each fork is shown as it is ready; one that fails stops no other, and the exit
code is then 1. The batch is the daemon's: it goes on when this command is
interrupted, and "brood batch attach" shows it again.

With a COMMAND that is run in each fork as it is ready. Its output is collected
and shown when it ends, with the fork's name in front of each line; a command
that fails makes the exit code 1. Of each output the first MiB is kept, the rest
is dropped: have the command write what is longer to a file, and copy that out.
With --rm the fork goes, and such files with it.

With --json the events of the batch are lines {"placement":…}, {"sync":…},
{"item":…}, commands {"exec":…}, and {"done":…} is the last one. An output that
is not UTF-8 is "stdout_base64" or "stderr_base64" there, in place of "stdout"
or "stderr"; "truncated" is true when more was written than is kept.`,
		Example: `  brood sb fork-many base 16
  brood sb fork-many base 32 --prefix try --json
  brood sb fork-many base 8 --rm -- sh -c 'python3 -m pytest --shard "$(hostname)"'
  brood sb fork-many --group base=8:web --group db=2`,
		ValidArgsFunction: a.complete(1, sourceNames),
	}
	f.register(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		before, command := split(cmd, args)
		switch {
		case len(f.groups) > 0 && len(before) > 0:
			return cli.WrongUse(cmd, "name one source and a count, or --group, not both")
		case len(f.groups) == 0 && len(before) != 2:
			return cli.WrongUse(cmd, "a source and a count are needed")
		case f.remove && len(command) == 0:
			return cli.WrongUse(cmd, "--rm removes a fork after its command: give one after --")
		}
		return nil
	}
	cmd.RunE = cli.Interruptible(func(ctx context.Context, args []string) error {
		before, command := split(cmd, args)
		return a.forkMany(ctx, &f, before, command)
	})
	return cmd
}

// forkManyFlags are the options of a batch.
type forkManyFlags struct {
	options  client.ForkManyOptions
	memory   string
	groups   []string
	remove   bool
	plain    bool
	parallel int
}

func (f *forkManyFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.options.On, "on", "", "`where`: local, auto (any machine that provides sandboxes), or host:MACHINE (default local)")
	flags.Uint32Var(&f.options.GroupSize, "group-size", 0, "forks that stay together on one machine; 0: all")
	flags.Uint32Var(&f.options.MaxParallelPerHost, "max-parallel", 0, "forks starting at once on a machine; 0: 4")
	flags.StringVar(&f.options.NamePrefix, "prefix", "", "name forks `PREFIX`-0, PREFIX-1, … (default: the source's name and random characters)")
	flags.Uint32Var(&f.options.CPUs, "cpus", 0, "vCPUs that a fork is counted as when placing; 0: 1")
	flags.StringVar(&f.memory, "memory", "", "memory that a fork is counted as when placing, as `size` such as 512M or 2G; a bare number is MiB (default: the checkpoint's)")
	flags.Uint32Var(&f.options.Retries, "retries", 0, "how often a fork is placed again when its machine failed; 0: once")
	flags.BoolVar(&f.options.NoRetry, "no-retry", false, "never place a fork again")
	flags.StringArrayVar(&f.groups, "group", nil, "`SOURCE=COUNT[:PREFIX]` instead of SOURCE COUNT; repeatable")
	flags.BoolVar(&f.remove, "rm", false, "remove each fork after its command")
	flags.BoolVar(&f.plain, "plain", false, "plain lines also on a terminal")
	flags.IntVar(&f.parallel, "parallel", 16, "commands running at once")
}

func (a *app) forkMany(ctx context.Context, f *forkManyFlags, source, command []string) error {
	groups, err := f.sources(source)
	if err != nil {
		return err
	}
	job, err := newJob(client.ExecOptions{Argv: command}, f.parallel, f.remove)
	if err != nil {
		return err
	}
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	var b *client.Batch
	if len(source) > 0 {
		b, err = c.ForkMany(ctx, groups[0].Source, groups[0].Count, &f.options)
	} else {
		b, err = c.ForkGroups(ctx, groups, &f.options)
	}
	if err != nil {
		if ctx.Err() != nil {
			a.Say("the batch may have begun: \"brood batch ls\" shows it then")
		}
		return err
	}
	defer b.Close()
	total := uint32(0)
	for _, g := range groups {
		total += g.Count
	}
	return a.watch(ctx, c, b, watchParams{total: total, plain: f.plain, job: job})
}

// sources reads what is to be forked.
func (f *forkManyFlags) sources(args []string) ([]client.ForkGroup, error) {
	if f.memory != "" {
		var err error
		if f.options.MemoryMB, err = config.ParseMiB("--memory", f.memory); err != nil {
			return nil, err
		}
	}
	if len(args) > 0 {
		n, err := count("COUNT", args[1])
		return []client.ForkGroup{{Source: args[0], Count: n}}, err
	}
	var groups []client.ForkGroup
	for _, s := range f.groups {
		i := strings.LastIndex(s, "=")
		if i <= 0 {
			return nil, errs.New(errs.InvalidArgument, "--group %q: write SOURCE=COUNT or SOURCE=COUNT:PREFIX", s)
		}
		number, prefix, _ := strings.Cut(s[i+1:], ":")
		n, err := count("--group "+s, number)
		if err != nil {
			return nil, err
		}
		groups = append(groups, client.ForkGroup{Source: s[:i], Count: n, NamePrefix: prefix})
	}
	return groups, nil
}

func count(what, s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == 0 || n > math.MaxInt32 {
		return 0, errs.New(errs.InvalidArgument, "%s: %q is no count: write a number from 1", what, s)
	}
	return uint32(n), nil
}
