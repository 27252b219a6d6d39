package forks

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"

	broodv1 "brood/api/brood/v1"
	"brood/client"
	"brood/internal/base/life"
	"brood/internal/edge/cli"
)

// logsParallel is how many forks' logs are read at once; when they are
// followed, all are.
const logsParallel = 8

func newBatchLogs(a *app) *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use:   "logs BATCH",
		Short: "Show what the commands of a batch's forks wrote",
		Long: `Show what the commands of a batch's forks wrote since they were forked, the
fork's name in front of each line. A batch at work is waited for. With --json
each line is {"name":…,"log":…}.`,
		Example:           "  brood batch logs b-3f0c -n 5\n  brood batch logs b-3f0c -f",
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: a.complete(1, batchNames),
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
			forks, err := a.readyForks(ctx, c, args[0])
			if err != nil {
				return err
			}
			return a.batchLogs(ctx, c, forks, o)
		}),
	}
	f.register(cmd)
	return cmd
}

// batchLogs shows the logs of many forks; what comes at once is kept apart by
// lines.
func (a *app) batchLogs(ctx context.Context, c *client.Client, forks []*client.ForkBatchItem, o client.LogOptions) error {
	limit := logsParallel
	if o.Follow {
		limit = len(forks)
	}
	var mu sync.Mutex // guards the outputs
	failures := life.Each(ctx, len(forks), limit, func(ctx context.Context, i int) error {
		l := newForkLog(a, &mu, forks[i].GetName())
		for m, err := range c.Logs(ctx, reachable(forks[i]), o) {
			if err != nil {
				return fmt.Errorf("%s: %w", forks[i].GetName(), err)
			}
			if err := l.write(m); err != nil {
				return err
			}
		}
		return l.flush()
	})
	return cli.Joined(failures)
}

// forkLog writes one fork's log in whole lines.
type forkLog struct {
	app  *app
	mu   *sync.Mutex
	name string
	rest map[broodv1.LogStream][]byte
}

func newForkLog(a *app, mu *sync.Mutex, name string) *forkLog {
	return &forkLog{app: a, mu: mu, name: name, rest: map[broodv1.LogStream][]byte{}}
}

func (l *forkLog) write(m *broodv1.GetLogsResponse) error {
	if !l.app.JSON && m.GetTime() == nil {
		stream := m.GetStream()
		data := append(l.rest[stream], m.GetData()...)
		whole := cli.LastLine(data)
		l.rest[stream] = append([]byte(nil), data[whole:]...)
		if len(l.rest[stream]) > maxCollected { // a line without end
			whole, l.rest[stream] = len(data), nil
		}
		m = &broodv1.GetLogsResponse{Stream: stream, Data: data[:whole]}
	}
	return l.show(m)
}

func (l *forkLog) show(m *broodv1.GetLogsResponse) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.app.JSON {
		return l.app.named(l.name, "log", m)
	}
	return writeLog(l.to(m.GetStream()), l.name+" | ", m)
}

func (l *forkLog) to(stream broodv1.LogStream) io.Writer {
	if stream == broodv1.LogStream_LOG_STREAM_STDERR {
		return l.app.Err
	}
	return l.app.Out
}

// flush writes lines that have not ended.
func (l *forkLog) flush() error {
	for _, stream := range []broodv1.LogStream{broodv1.LogStream_LOG_STREAM_UNSPECIFIED, broodv1.LogStream_LOG_STREAM_STDOUT, broodv1.LogStream_LOG_STREAM_STDERR} {
		if len(l.rest[stream]) > 0 {
			if err := l.show(&broodv1.GetLogsResponse{Stream: stream, Data: l.rest[stream]}); err != nil {
				return err
			}
		}
	}
	return nil
}
