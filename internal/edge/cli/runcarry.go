package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/edge/view"
	"brood/internal/run"
	"brood/internal/run/cache"
	"brood/internal/run/graph"
	"brood/internal/run/history"
	"brood/internal/run/orchestrator"
	"brood/internal/run/worker"
)

// carryOut runs what was selected and shows it.
func (a *app) carryOut(ctx context.Context, s *session, f runFlags) (err error) {
	c := orchestrator.Config{
		ID: newRunID(), Root: s.ws.Root, Tasks: s.graph.Tasks, Manager: s.ws.Manager, Globals: s.ws.Globals, Environ: s.environ,
		Retries: f.retry, Timeout: f.timeout,
	}
	if c.Continue, err = f.continues(s.ws); err != nil {
		return err
	}
	if c.Concurrency, err = f.places(s.ws); err != nil {
		return err
	}
	c.Lookups = 2 * c.Concurrency
	p, err := a.openParts(ctx, s, f)
	defer func() { err = errors.Join(err, p.close(context.WithoutCancel(ctx))) }()
	if err != nil {
		return err
	}
	p.into(&c, f.Tasks)
	show, err := a.shows(s, f)
	if err != nil {
		return err
	}
	c.Listen, c.Replay, p.warn = show.listen, show.replay, show.warn
	for _, w := range append(s.warnings(), p.early...) {
		show.warn(w)
	}
	ctx, stop := p.interrupts(ctx)
	defer stop()
	r, err := orchestrator.Run(ctx, c)
	if r == nil {
		return errors.Join(err, show.close())
	}
	err = errors.Join(err, show.close(), a.writeReports(s, f, r))
	if err != nil {
		return err
	}
	return failedRun(r, view.Tells(r.Finished))
}

// parts are what a run is made of.
type parts struct {
	keys   *keys
	cache  *cache.Cache
	wipe   bool
	worker *worker.Worker
	// history is nil where its file cannot be opened: then nothing is forecast.
	history *history.History
	figures map[id.Task]history.Figures

	early []string     // warnings from before there was a view
	warn  func(string) // set before anything runs
}

// openParts opens them at once: each waits for a disk or for git.
func (a *app) openParts(ctx context.Context, s *session, f runFlags) (*parts, error) {
	p := &parts{warn: func(text string) { a.say("warning: %s", text) }}
	dir, err := a.cacheDir()
	if err != nil {
		return p, err
	}
	stamps := cache.Stamps(dir, s.ws.Root)
	if b := s.ws.Settings.Brood; b != nil {
		p.wipe = b.Cache.Wipe
	}
	err = together(ctx,
		func(ctx context.Context) (err error) { p.keys, err = s.newKeys(ctx, stamps); return err },
		func(ctx context.Context) (err error) {
			p.cache, err = a.openCache(ctx, s, f, cache.Config{
				Dir: dir, Stamps: stamps, Warn: func(err error) { p.warn(err.Error()) },
				Tracked: func(path string) bool { return p.keys.snapshot.Tracked(path) },
			})
			return err
		},
		func(ctx context.Context) error { p.remember(ctx, a, s); return nil },
		func(context.Context) (err error) {
			p.worker, err = worker.New(worker.Config{Credentials: s.credentials()})
			return err
		},
	)
	return p, err
}

// remember opens the history. It is no reason not to run.
func (p *parts) remember(ctx context.Context, a *app, s *session) {
	h, err := a.openHistory(ctx)
	if err == nil {
		p.history = h
		p.figures, err = h.Figures(ctx, s.ws.Root, platform)
	}
	if err != nil && ctx.Err() == nil {
		p.early = append(p.early, "nothing is known of past runs: "+err.Error())
	}
}

// credentials are the variables that hold those of the cache, which no task
// sees.
func (s *session) credentials() []string {
	var names []string
	if b := s.ws.Settings.Brood; b != nil {
		if b.Cache.Token.Env != "" {
			names = append(names, b.Cache.Token.Env)
		}
		for _, h := range b.Cache.Headers {
			if h.Env != "" {
				names = append(names, h.Env)
			}
		}
	}
	return names
}

// answer is what the cache says of a key, for a dry run.
func (p *parts) answer(ctx context.Context, t *run.Task, key run.Key) string {
	if !t.Cache || t.Command.Empty() {
		return "off"
	}
	if _, hit := p.cache.Lookup(ctx, t, key); hit {
		return "hit"
	}
	return "miss"
}

func (p *parts) into(c *orchestrator.Config, command []string) {
	c.Keys, c.Worker, c.Cache = p.keys, p.worker, results{Cache: p.cache, wipe: p.wipe}
	if p.history != nil {
		c.History = past{History: p.history, command: command, keys: p.keys}
		c.Past = expectations(p.figures, c.Tasks)
	}
}

func (p *parts) close(ctx context.Context) error {
	var all error
	if p.cache != nil {
		all = errors.Join(all, p.cache.Close(ctx))
	}
	if p.worker != nil {
		all = errors.Join(all, p.worker.Close())
	}
	if p.history != nil {
		all = errors.Join(all, p.history.Close())
	}
	if p.keys != nil {
		all = errors.Join(all, p.keys.close())
	}
	return all
}

// interrupts ends the context with the first Ctrl-C or SIGTERM: tasks are asked
// to end. The third ends this program.
func (p *parts) interrupts(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	g := life.NewGroup(context.WithoutCancel(ctx))
	g.Go("interrupts", func(over context.Context) error {
		for range 2 {
			select {
			case <-over.Done():
				return nil
			case <-signals:
				cancel()
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
	if a.json {
		show.json = a.out
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
