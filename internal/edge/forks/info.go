package forks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	broodv1 "brood/api/brood/v1"
	"brood/client"
	"brood/internal/edge/cli"
	"brood/internal/home"
)

func newInfo(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "info NAME",
		Short:             "Show all that is known of a sandbox",
		Long:              "Show all that is known of a sandbox: state, limits, what it was made or forked\nfrom, memory and disk it holds.",
		Example:           "  brood sb info src\n  brood sb info src --json",
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: a.complete(1, sandboxNames),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			i, err := c.GetSandboxInfo(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.message(i)
			}
			return cli.Facts(a.Out, sandboxFacts(i))
		}),
	}
}

func sandboxFacts(i *broodv1.SandboxInfo) [][2]string {
	s := i.GetSandbox()
	f := [][2]string{
		{"name", s.GetName()},
		{"state", word(s.GetState(), "SANDBOX_STATE_")},
		{"error", s.GetError()},
		{"image", s.GetImage()},
		{"base", cli.Short(i.GetBaseDigest())},
		{"forked from", origin(i.GetOrigin())},
		{"driver", i.GetDriver()},
		{"runtime", cli.Short(i.GetRuntimeHash())},
		{"command", cli.OneLine(strings.Join(i.GetCommand(), " "))},
		{"exit code", exitCode(i.ExitCode)},
		{"workdir", i.GetWorkdir()},
		{"user", i.GetUser()},
		{"cpus", limit(uint64(i.GetCpus()), "")},
		{"memory limit", limit(i.GetMemoryMb(), " MiB")},
		{"memory held", bytesOr(i.GetMemoryBytes())},
		{"disk written", bytesOr(i.GetDiskBytes())},
		{"network", i.GetNetwork()},
		{"forkable", forkable(i)},
		{"services", numbers(s.GetServices())},
		{"labels", labels(s.GetLabels())},
		{"pid", plain(i.GetPid())},
		{"made", ago(s.GetCreatedAt())},
	}
	if i.GetUsedAt() != nil {
		f = append(f, [2]string{"used", ago(i.GetUsedAt())})
	}
	if s.GetExpiresAt() != nil {
		f = append(f, [2]string{"removed", in(s.GetExpiresAt())})
	}
	if i.GetIdleTimeout() != nil {
		f = append(f, [2]string{"removed when idle for", cli.Brief(i.GetIdleTimeout().AsDuration())})
	}
	for _, m := range i.GetMounts() {
		f = append(f, [2]string{"mount", mountText(m)})
	}
	for _, w := range i.GetWarnings() {
		f = append(f, [2]string{"warning", w})
	}
	return f
}

func origin(o *broodv1.ForkOrigin) string {
	if o == nil {
		return ""
	}
	s := fmt.Sprintf("%s (%s)", cli.OrDash(o.GetCheckpoint()), cli.Short(o.GetDigest()))
	if o.GetBatchId() != "" {
		s += fmt.Sprintf(", fork %d of batch %s", o.GetIndex(), o.GetBatchId())
	}
	return s
}

func exitCode(code *int32) string {
	if code == nil {
		return ""
	}
	return strconv.Itoa(int(*code))
}

func limit(n uint64, unit string) string {
	if n == 0 {
		return "no limit"
	}
	return strconv.FormatUint(n, 10) + unit
}

func bytesOr(n uint64) string {
	if n == 0 {
		return ""
	}
	return home.Bytes(n)
}

func forkable(i *broodv1.SandboxInfo) string {
	if i.GetForkable() {
		return "yes"
	}
	return "no: " + i.GetWhyNotForkable()
}

func mountText(m *broodv1.Mount) string {
	s := m.GetSource() + " at " + m.GetTarget()
	if m.GetReadOnly() {
		s += ", read-only"
	}
	return s
}

func labels(m map[string]string) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, k+"="+m[k])
	}
	return strings.Join(all, " ")
}

func numbers(m map[string]uint32) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, fmt.Sprintf("%s=%d", k, m[k]))
	}
	return strings.Join(all, " ")
}

// plain is a number, empty for 0.
func plain(n uint32) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(n), 10)
}
