package forks

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	broodv1 "brood/api/brood/v1"
	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/edge/cli"
)

// logFlags say which part of the output.
type logFlags struct {
	follow, timestamps bool
	lines              int
}

func (f *logFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "go on as more is written, until the sandbox ends")
	cmd.Flags().IntVarP(&f.lines, "lines", "n", -1, "the last `N` lines; -1: all that is kept")
	cmd.Flags().BoolVar(&f.timestamps, "timestamps", false, "the time in front of each line")
}

func (f *logFlags) options() (client.LogOptions, error) {
	o := client.LogOptions{Follow: f.follow, Timestamps: f.timestamps}
	if f.lines < -1 {
		return o, errs.New(errs.InvalidArgument, "--lines %d: write a number of lines, or -1 for all", f.lines)
	}
	if f.lines >= 0 {
		n := uint32(f.lines)
		o.Tail = &n
	}
	return o, nil
}

func newLogs(a *app) *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Show what a sandbox's command wrote",
		Long: `Show what the command of a sandbox wrote: its standard output here on standard
output, its standard error on standard error. A fork's log begins at the fork.

What is written while the disk is full is lost. Where it was, standard error has
a line "[brood: N bytes of output were lost: the disk was full]".`,
		Example:           "  brood sb logs src\n  brood sb logs -f -n 20 src",
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: a.complete(1, sandboxNames),
		RunE: cli.Interruptible(func(ctx context.Context, args []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			c, err := a.dial(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			for m, err := range c.Logs(ctx, args[0], o) {
				if err != nil {
					return err
				}
				if err := a.showLog(m); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	f.register(cmd)
	return cmd
}

func (a *app) showLog(m *broodv1.GetLogsResponse) error {
	if a.JSON {
		return a.message(m)
	}
	w := a.Out
	if m.GetStream() == broodv1.LogStream_LOG_STREAM_STDERR {
		w = a.Err
	}
	return writeLog(w, "", m)
}

// writeLog writes a piece of output. With a prefix or a time, which a piece
// has when it is whole lines, these go in front of each line.
func writeLog(w io.Writer, prefix string, m *broodv1.GetLogsResponse) error {
	if m.GetTime() != nil {
		prefix += m.GetTime().AsTime().UTC().Format(time.RFC3339Nano) + " "
	}
	if prefix == "" {
		_, err := w.Write(m.GetData())
		return err
	}
	_, err := w.Write(prefixed(prefix, m.GetData()))
	return err
}

// prefixed puts a prefix in front of each line, and ends the last one.
func prefixed(prefix string, data []byte) []byte {
	if len(data) == 0 {
		return nil
	}
	var b bytes.Buffer
	for line := range bytes.Lines(data) {
		b.WriteString(prefix)
		b.Write(bytes.TrimSuffix(line, []byte("\n")))
		b.WriteByte('\n')
	}
	return b.Bytes()
}
