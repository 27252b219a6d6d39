package runs

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"brood/internal/base/life"
	"brood/internal/edge/cli"
	"brood/internal/edge/view"
	"brood/internal/run"
	"brood/internal/run/graph"
	"brood/internal/run/orchestrator"
)

// carryOut runs what was selected and shows it.
func (a *app) carryOut(ctx context.Context, s *session, p *parts, f runFlags) (err error) {
	c := orchestrator.Config{
		ID: newRunID(), Root: s.ws.Root, Tasks: s.graph.Tasks, Manager: s.ws.Manager, Globals: s.ws.Globals, Environ: s.environ,
		Retries: f.retry, Timeout: f.timeout, Began: a.Began,
	}
	if c.Continue, err = f.continues(s.ws); err != nil {
		return err
	}
	if c.Concurrency, err = f.places(s.ws); err != nil {
		return err
	}
	c.Concurrency = min(c.Concurrency, max(1, len(c.Tasks))) // more would wait for work
	c.Lookups = 2 * c.Concurrency
	if err := p.open(ctx, a, s, f); err != nil {
		return err
	}
	p.into(&c, f.remembered())
	show, err := a.shows(s, f)
	if err != nil {
		return err
	}
	c.Listen, c.Replay = show.listen, show.replay
	for _, w := range append(s.warnings(), p.early...) {
		show.warn(w)
	}
	p.showing = true
	ctx, stop := p.interrupts(ctx)
	defer stop()
	early := p.warn
	p.warn = show.warn
	r, err := orchestrator.Run(ctx, c)
	p.warn = early // nothing is shown after the end
	if r == nil {
		return errors.Join(err, show.close())
	}
	err = errors.Join(err, show.close(), a.writeReports(ctx, f, r))
	if err != nil {
		return err
	}
	return failedRun(r, view.Tells(r.Finished))
}

// interrupts ends the context with the first Ctrl-C or SIGTERM: tasks are asked
// to end. The second kills them, the third ends this program.
func (p *parts) interrupts(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 4)
	if heeded := cli.Heeded(); len(heeded) > 0 {
		signal.Notify(signals, heeded...)
	}
	g := life.NewGroup(context.WithoutCancel(ctx))
	g.Go("interrupts", func(over context.Context) error {
		for _, act := range []func(){cancel, p.worker.Kill} {
			select {
			case <-over.Done():
				return nil
			case <-signals:
				act()
			}
		}
		signal.Stop(signals)
		return nil
	})
	return ctx, func() {
		signal.Stop(signals)
		cancel()
		_ = g.Stop() // it returns no error
	}
}

// shown is how a run is seen: by a view, or as JSON lines.
type shown struct {
	options view.Options
	view    *view.View // nil: JSON
	json    io.Writer
	tasks   *graph.Graph
	ticks   *life.Group

	mu  sync.Mutex // guards err and the order of JSON lines
	err error
}

// tickEvery is how often what is gathered is written.
const tickEvery = 100 * time.Millisecond

func (a *app) shows(s *session, f runFlags) (*shown, error) {
	o, err := a.viewOptions(f)
	if err != nil {
		return nil, err
	}
	show := &shown{options: o, tasks: s.graph, ticks: life.NewGroup(context.Background())}
	if a.JSON {
		show.json = a.Out
		return show, nil
	}
	show.view = view.New(o)
	show.ticks.Go("ticks", func(ctx context.Context) error {
		t := time.NewTicker(tickEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case now := <-t.C:
				show.view.Tick(now)
			}
		}
	})
	return show, nil
}

func (s *shown) listen(at time.Time, e orchestrator.Event) {
	if s.view != nil {
		s.view.Event(at, e)
		return
	}
	line, err := orchestrator.Encode(at, e)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.err == nil {
		_, err = s.json.Write(append(line, '\n'))
	}
	if s.err == nil {
		s.err = err
	}
}

func (s *shown) warn(text string) {
	s.listen(time.Now(), orchestrator.Warning{Message: text})
}

// replay says whether a hit's stored output is shown.
func (s *shown) replay(t *run.Task) bool { return view.Replays(s.options.Mode(t.OutputLogs)) }

func (s *shown) close() error {
	if s.view == nil {
		return s.err
	}
	_ = s.ticks.Stop() // it returns no error
	return s.view.Close(time.Now())
}
