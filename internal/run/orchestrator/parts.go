package orchestrator

import (
	"context"
	"io"
	"time"

	"brood/internal/base/id"
	"brood/internal/run"
)

// Keys derives keys. Safe for concurrent use.
type Keys interface {
	// Key is called once for each task, after it was called for all its
	// dependencies, whose keys are in upstream.
	Key(ctx context.Context, t *run.Task, upstream map[id.Task]run.Key) (run.Key, error)
	// Changed names an input that is no longer as the task's key has it; "" when
	// all are. With an attempt's begin, one that was written since counts, though
	// it holds what it held; the zero time asks for contents alone.
	Changed(ctx context.Context, t *run.Task, began time.Time) (string, error)
	// ChangedUnder is Changed for a task that by works with: what by writes itself
	// does not count.
	ChangedUnder(ctx context.Context, t, by *run.Task, began time.Time) (string, error)
	// Grown names a file that has come and would be part of every key; a look
	// that would take longer than most is left out.
	Grown(t *run.Task, most time.Duration) (string, error)
}

// Cache answers keys with results. Safe for concurrent use. A cache that cannot
// answer says that it is a miss; what it has to say of that it warns of itself.
type Cache interface {
	Lookup(ctx context.Context, t *run.Task, key run.Key) (Hit, bool)
	// Enter is called before each attempt of a task. While another run of the
	// workspace writes the task's outputs it waits, and says so, as while a task
	// beside it does that writes the same files; taken says that another run did
	// since the task was looked up.
	Enter(ctx context.Context, t *run.Task, waits func(beside id.Task)) (turn Turn, taken bool, err error)
	// Stands says how a task's outputs lie now, without look only whether another
	// run wrote them; what by adds to them itself does not count. Disturbed says
	// that another run may have written some.
	Stands(t, by *run.Task, look bool) Standing
	Disturbed() bool
	// Prepare is called before each attempt of a task that may be saved; what it
	// returns comes back in the Saving.
	Prepare(ctx context.Context, t *run.Task) (before any, err error)
	Save(ctx context.Context, r Saving) error
	// Share waits until what was saved is where other machines find it; nothing
	// is saved any more. The end of ctx gives up what is not. told hears now and
	// then how many results are left.
	Share(ctx context.Context, told func(left int))
}

// Turn is the right to write a task's outputs, from Begin to End.
type Turn interface {
	Begin() error
	End() error
}

// Standing is what became of a task's outputs since this run was done with it.
type Standing struct {
	// Foreign says that another run wrote them, Changed which of them has another
	// content, "" for none.
	Foreign bool
	Changed string
}

// Hit is a stored result.
type Hit interface {
	// Restore makes the outputs what they were; touched says that it had to
	// change anything. While another run writes there it waits, and says so.
	Restore(ctx context.Context, waits func(beside id.Task)) (touched bool, err error)
	// Log is what the task wrote when it ran.
	Log(ctx context.Context) (io.ReadCloser, error)
	// Took and Usage are what the run that produced it measured.
	Took() time.Duration
	Usage() run.Usage
	Remote() bool
}

// Saving is a result to be stored.
type Saving struct {
	Task   *run.Task
	Key    run.Key
	Result run.Result
	// Log is all that the task wrote.
	Log *Log
	// Turn and Before are what Enter and Prepare returned.
	Turn   Turn
	Before any
}

// Worker executes tasks on this machine. Safe for concurrent use. The end of
// ctx aborts: the task's processes are told to end, and killed when they don't.
type Worker interface {
	Execute(ctx context.Context, o run.Order, out io.Writer) run.Result
}

// History remembers what tasks took. It is called by the loop alone.
type History interface {
	Record(ctx context.Context, r *Report) error
}
