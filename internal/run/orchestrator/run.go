package orchestrator

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/run"
	"brood/internal/run/dispatch"
)

const (
	// batchEvery is how often the output of tasks is passed on.
	batchEvery = 100 * time.Millisecond
	// abortWithin bounds the end of an aborted run: a task has 2 s to end by
	// itself, and what then is not gone is not waited for.
	abortWithin = 5 * time.Second
)

// runner is a run in progress. All of it belongs to the loop; those who derive,
// restore and run only read what the loop wrote before it asked them.
type runner struct {
	c     Config
	tasks []*run.Task
	ups   [][]int // what each waits on
	state []task
	late  []bool // waits, at some distance, on a task that is not cached
	m     *dispatch.Machine
	began time.Time
	speak *speaker
	group *life.Group

	derive   chan int
	restore  chan int
	messages chan message
	kick     chan struct{}
	live     map[int]*task // those that run
	// generated is when the last task that is not cached ended, in nanoseconds.
	generated atomic.Int64

	report Report
}

// task is what the run knows of one task.
type task struct {
	key     run.Key
	cache   string // as in Keyed
	hit     Hit
	touched bool
	unsaved string
	err     error

	began, ended time.Time // of the first attempt, or of the restore
	result       run.Result
	log          *Log
	cancel       context.CancelFunc
	goOn         chan struct{} // closed when an attempt that waited has a place again
}

// message tells the loop what came of an effect, or how it goes on when it has
// no event.
type message struct {
	task  int
	event dispatch.Event
	err   error

	// of what goes on
	waits  bool          // for another run, or
	beside id.Task       // for this task
	starts int           // the number of an attempt
	heard  chan struct{} // closed when its start was heard

	// of a lookup
	key   run.Key
	cache string
	hit   Hit
	// of a restore
	touched bool
	replay  []byte
	// of an attempt
	result  *run.Result
	entered time.Time // zero: it took no turn
	unsaved string
	ended   time.Time
}

// Run carries out a run to its end. The end of ctx aborts it, or the wait for
// uploads when the tasks are done. A run whose tasks
// failed is no error: the report says so.
func Run(ctx context.Context, c Config) (*Report, error) {
	if err := refuseNested(c); err != nil {
		return nil, err
	}
	tasks, params := prepare(c)
	m, err := dispatch.New(params)
	if err != nil {
		return nil, err
	}
	r := &runner{
		c: c, tasks: tasks, m: m, ups: make([][]int, len(tasks)), state: make([]task, len(tasks)), late: make([]bool, len(tasks)), began: time.Now(),
		derive: make(chan int, params.Derivations), restore: make(chan int, params.Restores),
		kick: make(chan struct{}, 1), live: map[int]*task{},
	}
	if !c.Began.IsZero() {
		r.began = c.Began
	}
	owed := params.Derivations + 2*params.Restores + 4*params.Executions
	index := make(map[id.Task]int, len(tasks))
	for i, t := range tasks {
		index[t.ID] = i
		r.ups[i] = make([]int, len(t.Deps))
		for at, d := range t.Deps {
			up := index[d]
			r.ups[i][at] = up
			r.late[i] = r.late[i] || r.late[up] || !tasks[up].Cache && !uncounted(tasks[up])
		}
		if t.Persistent {
			owed += 3
		}
	}
	r.messages = make(chan message, owed) // nobody waits for long to say something
	r.report.Began, r.report.At = describe(c, tasks, params), r.began
	// The work has a context of its own: an abort goes through the decider, so
	// that each task is stopped in its order.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	r.group = life.NewGroup(work)
	r.speak = newSpeaker(ctx.Done(), c.Listen)
	r.pools(params)
	r.emit(r.report.Began)
	loopErr := r.loop(ctx, stop)
	stop()
	close(r.derive)
	close(r.restore)
	if loopErr == nil { // else somebody does not end, and is not waited for
		loopErr = r.group.Wait()
		if c.Cache != nil {
			c.Cache.Share(ctx, func(left int) { r.emit(Uploading{Left: left}) })
		}
	}
	r.report.finish(r.tasks, time.Since(r.began))
	err = r.remember(ctx)
	if err != nil {
		r.emit(Warning{Message: fmt.Sprintf("the run is not in the history: %v", err)})
	}
	r.emit(r.report.Finished)
	r.speak.close()
	return &r.report, loopErr
}

// pools starts those who derive and restore.
func (r *runner) pools(p dispatch.Params) {
	for range min(p.Derivations, len(r.tasks)) {
		r.group.Go("keys", func(ctx context.Context) error {
			for i := range r.derive {
				r.messages <- r.lookup(ctx, i)
			}
			return nil
		})
	}
	for range min(p.Restores, len(r.tasks)) {
		r.group.Go("restores", func(ctx context.Context) error {
			for i := range r.restore {
				r.messages <- r.place(ctx, i)
			}
			return nil
		})
	}
}

// loop does what the decider says until the run is over. stop ends whatever is
// in progress.
func (r *runner) loop(ctx context.Context, stop context.CancelFunc) error {
	r.perform(r.m.Step(nil))
	ticks := time.NewTicker(batchEvery)
	defer ticks.Stop()
	over := ctx.Done()
	var late <-chan time.Time
	for !r.m.Done() {
		select {
		case msg := <-r.messages:
			if msg.waits || msg.starts > 0 {
				r.goesOn(msg)
			}
			if msg.event != nil {
				r.note(msg)
				r.perform(r.m.Step(msg.event))
			}
		case <-ticks.C:
			r.pump()
		case <-r.kick:
			r.pump()
		case <-over:
			over = nil
			r.perform(r.m.Step(dispatch.Abort{}))
			limit := time.NewTimer(abortWithin)
			defer limit.Stop()
			late = limit.C
		case <-late:
			r.giveUp()
			return errs.New(errs.Canceled, "interrupted: %d tasks have not ended after %s and are left to themselves", len(r.live), abortWithin)
		}
		if r.m.Aborted() {
			stop()
		}
	}
	return nil
}

// giveUp ends in the books what does not end.
func (r *runner) giveUp() {
	ended := r.report.outcomes()
	for i, t := range r.tasks {
		s := &r.state[i]
		if uncounted(t) || ended[t.ID] != nil {
			continue
		}
		s.ended = time.Now()
		r.end(dispatch.End{Task: i, Status: run.Aborted, Cause: -1})
	}
}

func (r *runner) emit(e Event) { r.speak.say(e) }

// perform begins what the decider wants.
func (r *runner) perform(effects []dispatch.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case dispatch.Derive:
			r.derive <- e.Task // has room: the decider counts
		case dispatch.Restore:
			r.state[e.Task].began = time.Now()
			r.restore <- e.Task
		case dispatch.Run:
			r.start(e)
		case dispatch.Go:
			close(r.state[e.Task].goOn)
		case dispatch.Stop:
			r.state[e.Task].cancel()
		case dispatch.End:
			r.end(e)
		}
	}
}

// remember writes the run into the history, also when it was aborted.
func (r *runner) remember(ctx context.Context) error {
	if r.c.History == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWithin)
	defer cancel()
	if err := r.c.History.Record(ctx, &r.report); err != nil {
		return errs.New(errs.CodeOf(err), "%w", err)
	}
	return nil
}
