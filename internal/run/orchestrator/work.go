package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/dispatch"
)

// replayMost is how much of a hit's stored output is shown: its end.
const replayMost = 4 << 20

// The answers of the cache, as in Keyed.
const (
	cacheHit     = "hit"
	cacheMiss    = "miss"
	cacheOff     = "off"
	cacheUnknown = "unknown"
)

// lookup derives a task's key and asks the cache.
func (r *runner) lookup(ctx context.Context, i int) message {
	t := r.tasks[i]
	msg := message{task: i}
	upstream := make(map[id.Task]run.Key, len(t.Deps))
	for at, d := range t.Deps {
		upstream[d] = r.state[r.ups[i][at]].key
	}
	msg.key, msg.err = r.c.Keys.Key(ctx, t, upstream)
	if msg.err == nil && r.late[i] {
		msg.err = r.settled(ctx, t)
	}
	answer := dispatch.Miss
	switch {
	case msg.err != nil:
		msg.key, msg.cache, answer = "", cacheUnknown, dispatch.NoKey
	case !t.Cache || uncounted(t) || r.c.Cache == nil:
		msg.cache = cacheOff
	default:
		msg.cache = cacheMiss
		if hit, ok := r.c.Cache.Lookup(ctx, t, msg.key); ok {
			msg.hit, msg.cache, answer = hit, cacheHit, dispatch.Hit
		}
	}
	msg.event = dispatch.Keyed{Task: i, Answer: answer}
	return msg
}

// settled checks the inputs of a task that waits on some that are not cached:
// what those wrote in this run is not in the files that keys are derived from,
// and a hit on what was there before would be a stale one.
func (r *runner) settled(ctx context.Context, t *run.Task) error {
	changed, err := r.c.Keys.Changed(ctx, t, time.Time{})
	if err == nil && changed != "" {
		err = errs.New(errs.FailedPrecondition, "a task before it that is not cached changed its input %s", changed)
	}
	return err
}

// place restores a hit, and reads its output where that is wanted.
func (r *runner) place(ctx context.Context, i int) message {
	msg := message{task: i}
	hit := r.state[i].hit
	msg.touched, msg.err = hit.Restore(ctx, r.tellsWait(message{task: i}))
	if msg.err == nil {
		msg.replay = r.replay(ctx, r.tasks[i], hit)
	}
	msg.ended = time.Now()
	msg.event = dispatch.Restored{Task: i, OK: msg.err == nil}
	return msg
}

// replay is a hit's stored output, where that is wanted.
func (r *runner) replay(ctx context.Context, t *run.Task, h Hit) []byte {
	if r.c.Replay == nil || !r.c.Replay(t) {
		return nil
	}
	text, err := readLog(ctx, h)
	if err != nil {
		return nil // the outputs are right without it
	}
	return text
}

// readLog reads the end of a stored output.
func readLog(ctx context.Context, h Hit) (text []byte, err error) {
	f, err := h.Log(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if text, err = io.ReadAll(io.LimitReader(f, replayMost)); err != nil || len(text) < replayMost {
		return text, err
	}
	cut, more := false, make([]byte, replayMost/4)
	for err == nil {
		var n int
		if n, err = io.ReadFull(f, more); n > 0 {
			text = append(text[:copy(text, text[n:])], more[:n]...)
			cut = true
		}
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	if cut {
		text = append([]byte("[the beginning is left out]\n"), text...)
	}
	return text, nil
}

// start begins an attempt in a goroutine of its own.
func (r *runner) start(e dispatch.Run) {
	i, s := e.Task, &r.state[e.Task]
	ctx, cancel := context.WithCancel(r.group.Context())
	log := newLog(r.c.LogDir, r.kicked)
	s.cancel, s.log, s.unsaved, s.goOn = cancel, log, "", make(chan struct{})
	if e.Attempt == 1 {
		s.began = time.Now()
	} else {
		r.emit(Retrying{Task: r.tasks[i].ID, Attempt: e.Attempt - 1, Exit: s.result.Exit, TimedOut: s.result.TimedOut})
	}
	order := run.Order{Task: r.tasks[i], Attempt: e.Attempt, Root: r.c.Root, Manager: r.c.Manager, Globals: r.c.Globals, Environ: r.c.Environ}
	key, goOn := s.key, s.goOn
	r.group.Go(string(order.Task.ID), func(context.Context) error {
		r.messages <- r.attempt(ctx, attempt{order: order, index: i, key: key, save: e.Save, log: log, goOn: goOn})
		return nil
	})
}

func (r *runner) kicked() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

type attempt struct {
	order run.Order
	index int
	key   run.Key
	save  bool
	log   *Log
	goOn  <-chan struct{} // closed when it may go on after it waited
	turn  Turn
	// entered is when nobody had to be waited for any more, began when the
	// command was about to begin.
	entered, began time.Time
}

// attempt executes a task once, and saves its result when it may. A task that
// another run of the workspace executes is waited for: it may have made what is
// wanted here.
func (r *runner) attempt(ctx context.Context, a attempt) (msg message) {
	t := a.order.Task
	stored := t.Cache && a.key != "" && r.c.Cache != nil
	var before any
	var fault error // of the cache: the result cannot be saved
	if r.c.Cache != nil && !t.Persistent {
		var found bool
		if msg, found, fault = r.enter(ctx, &a, stored); found {
			return msg
		}
		if a.turn != nil {
			defer func() {
				if err := a.turn.End(); err != nil && msg.unsaved == "" {
					msg.unsaved = err.Error()
				}
			}()
		}
	}
	if a.turn != nil && fault == nil {
		fault = a.turn.Begin()
	}
	if stored && fault == nil {
		before, fault = r.c.Cache.Prepare(ctx, t)
	}
	if ctx.Err() != nil { // stopped before anything began
		return message{task: a.index, entered: a.entered, result: &run.Result{}, event: dispatch.Ran{Task: a.index, Ending: dispatch.Unable}, ended: time.Now()}
	}
	if stored && r.late[a.index] {
		r.afterGenerators(ctx)
	}
	heard := make(chan struct{})
	r.messages <- message{task: a.index, starts: a.order.Attempt, heard: heard}
	if t.Interactive { // until the listener has given the terminal away
		select {
		case <-heard:
		case <-ctx.Done():
		}
	}
	a.began = time.Now() // the result's times may be another machine's
	result := r.c.Worker.Execute(ctx, a.order, a.log)
	msg = message{task: a.index, result: &result, entered: a.entered}
	ran := dispatch.Ran{Task: a.index, Ending: dispatch.Succeeded}
	switch {
	case result.Err != nil:
		ran.Ending, msg.err = dispatch.Unable, result.Err
	case result.Interrupted:
		ran.Ending = dispatch.Interrupted
	case !result.OK():
		ran.Ending = dispatch.Broke
	case !stored:
	case fault != nil:
		msg.unsaved = fault.Error()
	default:
		msg.unsaved, ran.Unproven = r.save(ctx, a, result, before)
	}
	msg.event, msg.ended = ran, time.Now()
	return msg
}

// apart is how much later than a file an attempt must begin so that the file is
// known to be older: the tick of a file system's clock (stamp.Granule).
const apart = 20 * time.Millisecond

// afterGenerators waits until what the last task that is not cached wrote is
// older than the attempt that begins now: it would pass for written meanwhile.
func (r *runner) afterGenerators(ctx context.Context) {
	left := apart - time.Since(time.Unix(0, r.generated.Load()))
	if left <= 0 {
		return
	}
	select {
	case <-time.After(left):
	case <-ctx.Done():
	}
}

// tellsWait returns what sends a message, once, that says that its task waits for
// another run, or for a task that writes the same files.
func (r *runner) tellsWait(msg message) func(beside id.Task) {
	var once sync.Once
	return func(beside id.Task) {
		once.Do(func() {
			msg.waits, msg.beside = true, beside
			r.messages <- msg
		})
	}
}

// enter takes the turn of an attempt's task. found says that another run had it
// and left a result, which is restored and is what msg tells.
func (r *runner) enter(ctx context.Context, a *attempt, stored bool) (msg message, found bool, err error) {
	t, waited := a.order.Task, false
	tell := r.tellsWait(message{task: a.index, event: dispatch.Waits{Task: a.index}})
	waits := func(beside id.Task) { waited = true; tell(beside) }
	defer func() {
		if !found && waited {
			r.messages <- message{task: a.index, event: dispatch.Ready{Task: a.index}}
			select {
			case <-a.goOn:
			case <-ctx.Done():
			}
			a.entered = time.Now()
		}
	}()
	turn, taken, err := r.c.Cache.Enter(ctx, t, waits)
	a.entered = time.Now()
	if err != nil || !taken || !stored {
		a.turn = turn
		return msg, false, err
	}
	if hit, ok := r.c.Cache.Lookup(ctx, t, a.key); ok {
		if err := turn.End(); err != nil { // a restore takes it again
			return msg, false, err
		}
		if msg.touched, err = hit.Restore(ctx, waits); err == nil {
			msg.entered, msg.task, msg.hit, msg.replay, msg.result = a.entered, a.index, hit, r.replay(ctx, t, hit), &run.Result{}
			msg.ended = time.Now()
			msg.event = dispatch.Ran{Task: a.index, Ending: dispatch.Found}
			return msg, true, nil
		}
		turn, _, err = r.c.Cache.Enter(ctx, t, waits)
	}
	a.turn = turn
	return msg, false, err
}

// save stores a result; unsaved says why it did not, unproven that the inputs
// changed while the task ran.
func (r *runner) save(ctx context.Context, a attempt, result run.Result, before any) (unsaved string, unproven bool) {
	why, err := r.moved(ctx, a)
	switch {
	case err != nil:
		return fmt.Sprintf("its inputs could not be checked again: %v", err), true
	case why != "":
		return why, true
	case !a.save:
		return "a task before it failed, or its inputs changed", false
	}
	if err := r.c.Cache.Save(ctx, Saving{Task: a.order.Task, Key: a.key, Result: result, Log: a.log, Before: before, Turn: a.turn}); err != nil {
		return err.Error(), false
	}
	return "", false
}

// Of what a task waits on, lookShare of the time that the task took goes into
// looking at inputs and outputs, and lookLeast at least; those that it names
// itself are always looked at, and those behind one that has no command. Where a
// task takes a millisecond and a thousand come before it, looking at all of them
// would take longer than the run.
const (
	lookShare = 20
	lookLeast = 250 * time.Microsecond
)

// moved says what is not as an attempt's key has it, "" when all is: an input of
// its task or of those before it, whose sources it may read as well, or what
// these made.
func (r *runner) moved(ctx context.Context, a attempt) (string, error) {
	changed, err := r.c.Keys.Changed(ctx, a.order.Task, a.began)
	if err != nil {
		return "", err
	}
	if changed != "" {
		return fmt.Sprintf("its input %s changed while it ran", changed), nil
	}
	began := time.Now()
	most := max(began.Sub(a.began)/lookShare, lookLeast)
	came, err := r.c.Keys.Grown(a.order.Task, most)
	if err != nil {
		return "", err
	}
	if came != "" {
		return fmt.Sprintf("%s, an input of every task, came while it ran", came), nil
	}
	until := began.Add(most)
	disturbed := r.c.Cache.Disturbed()
	seen := make([]bool, a.index) // those it waits on come before it
	next, direct := []int{a.index}, map[int]bool{a.index: true}
	for at := 0; at < len(next); at++ {
		look := direct[next[at]] || time.Now().Before(until)
		if !look && !disturbed {
			return "", nil
		}
		for _, up := range r.ups[next[at]] {
			if seen[up] {
				continue
			}
			seen[up] = true
			next = append(next, up)
			if direct[next[at]] && uncounted(r.tasks[up]) {
				direct[up] = true
			}
			if why, err := r.stood(ctx, a, r.tasks[up], look); why != "" || err != nil {
				return why, err
			}
		}
	}
	return "", nil
}

// stood says why a result may not stand on what a task before it made.
func (r *runner) stood(ctx context.Context, a attempt, t *run.Task, look bool) (why string, err error) {
	s := r.c.Cache.Stands(t, a.order.Task, look)
	switch {
	case s.Foreign:
		return fmt.Sprintf("another run wrote the outputs of %s, which it works with", t.ID), nil
	case s.Changed != "":
		return fmt.Sprintf("%s, an output of %s, which it works with, changed", s.Changed, t.ID), nil
	case !look:
		return "", nil
	}
	changed, err := r.c.Keys.ChangedUnder(ctx, t, a.order.Task, a.began)
	if changed != "" {
		why = fmt.Sprintf("%s, an input of %s, which it works with, changed while it ran", changed, t.ID)
	}
	return why, err
}
