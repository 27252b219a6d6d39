package orchestrator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"brood/internal/base/digest"
	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/dispatch"
	"brood/internal/run/orchestrator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the parts of a run in memory: a cache that keeps what it is given,
// and a worker whose commands are functions.
type world struct {
	mu       sync.Mutex
	commands map[id.Task]func(ctx context.Context, attempt int, out io.Writer) int
	store    map[run.Key]*stored
	changed  map[id.Task]bool
	grown    map[id.Task]string
	blocked  map[id.Task]chan struct{} // another run has its turn until it is closed
	standing map[id.Task]orchestrator.Standing
	noKey    map[id.Task]bool
	broken   map[id.Task]bool // hits that cannot be restored
	enter    func(*run.Task) (turn orchestrator.Turn, waited bool)
	share    func(context.Context, func(int))
	ran      []id.Task
	events   []orchestrator.Event
	recorded *orchestrator.Report
}

type stored struct {
	w    *world
	task id.Task
	log  string
	took time.Duration
}

func newWorld() *world {
	return &world{
		commands: map[id.Task]func(context.Context, int, io.Writer) int{}, store: map[run.Key]*stored{},
		changed: map[id.Task]bool{}, standing: map[id.Task]orchestrator.Standing{}, noKey: map[id.Task]bool{}, broken: map[id.Task]bool{},
	}
}

func (w *world) Key(_ context.Context, t *run.Task, upstream map[id.Task]run.Key) (run.Key, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.noKey[t.ID] {
		return "", errors.New("unreadable input")
	}
	all := []string{string(t.ID)}
	for _, d := range t.Deps {
		if upstream[d] == "" {
			return "", fmt.Errorf("the key of %s is not there", d)
		}
		all = append(all, string(upstream[d]))
	}
	return digest.Of([]byte(strings.Join(all, " "))), nil
}

func (w *world) Changed(_ context.Context, t *run.Task, _ time.Time) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed[t.ID] {
		return "src/x", nil
	}
	return "", nil
}

func (w *world) ChangedUnder(ctx context.Context, t, _ *run.Task, began time.Time) (string, error) {
	return w.Changed(ctx, t, began)
}

func (w *world) Grown(t *run.Task, _ time.Duration) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.grown[t.ID], nil
}

func (w *world) Lookup(_ context.Context, _ *run.Task, key run.Key) (orchestrator.Hit, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.store[key]
	return s, ok
}

func (w *world) Enter(_ context.Context, t *run.Task, waits func(id.Task)) (orchestrator.Turn, bool, error) {
	if c := w.blocked[t.ID]; c != nil {
		waits("")
		<-c
		return turn{}, true, nil
	}
	if w.enter == nil {
		return turn{}, false, nil
	}
	turn, waited := w.enter(t)
	if waited {
		waits("")
	}
	return turn, waited, nil
}

type turn struct{}

func (turn) Begin() error { return nil }
func (turn) End() error   { return nil }

func (w *world) Disturbed() bool { return false }

func (w *world) Stands(t, _ *run.Task, _ bool) orchestrator.Standing {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.standing[t.ID]
}

func (w *world) Prepare(_ context.Context, t *run.Task) (any, error) { return t.ID, nil }

func (w *world) Save(_ context.Context, s orchestrator.Saving) error {
	if s.Before != s.Task.ID {
		return errors.New("it was not prepared")
	}
	r, err := s.Log.Reader()
	if err != nil {
		return err
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.store[s.Key] = &stored{w: w, task: s.Task.ID, log: string(text), took: s.Result.Ended.Sub(s.Result.Began)}
	return nil
}

func (w *world) Share(ctx context.Context, told func(int)) {
	if w.share != nil {
		w.share(ctx, told)
	}
}

func (s *stored) Restore(context.Context, func(id.Task)) (bool, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.w.broken[s.task] {
		return false, errors.New("damaged")
	}
	return true, nil
}
func (s *stored) Log(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(s.log)), nil
}
func (s *stored) Took() time.Duration { return s.took }
func (s *stored) Usage() run.Usage    { return run.Usage{CPU: time.Second, PeakMemory: 1 << 20} }
func (s *stored) Remote() bool        { return false }

func (w *world) Execute(ctx context.Context, o run.Order, out io.Writer) run.Result {
	w.mu.Lock()
	w.ran = append(w.ran, o.Task.ID)
	f := w.commands[o.Task.ID]
	w.mu.Unlock()
	r := run.Result{Began: time.Now()}
	if f != nil {
		r.Exit = f(ctx, o.Attempt, out)
	}
	r.Ended = time.Now()
	return r
}

func (w *world) Record(_ context.Context, r *orchestrator.Report) error {
	w.recorded = r
	return nil
}

// run carries out a run of tasks in this world; each has its line as a name and
// its dependencies: "b: a".
func (w *world) run(ctx context.Context, t *testing.T, change func(*orchestrator.Config), lines ...string) *orchestrator.Report {
	t.Helper()
	r, err := w.try(ctx, t, change, lines...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// try is run for one that may not come to its end.
func (w *world) try(ctx context.Context, t *testing.T, change func(*orchestrator.Config), lines ...string) (*orchestrator.Report, error) {
	t.Helper()
	w.ran, w.events = nil, nil
	c := orchestrator.Config{
		ID: "r", Root: "/ws", Keys: w, Cache: w, Worker: w, History: w, Continue: dispatch.Dependents, Concurrency: 2, Lookups: 4,
		LogDir: t.TempDir(),
		Listen: func(_ time.Time, e orchestrator.Event) { w.events = append(w.events, e) },
		Replay: func(*run.Task) bool { return true },
	}
	for _, line := range lines {
		name, deps, _ := strings.Cut(line, ":")
		task := &run.Task{ID: id.TaskOf("p", name), Project: "p", Name: name, Command: run.Command{Line: name}, Requested: true}
		task.Cache = true
		for _, d := range strings.Fields(deps) {
			task.Deps = append(task.Deps, id.TaskOf("p", d))
		}
		c.Tasks = append(c.Tasks, task)
	}
	if change != nil {
		change(&c)
	}
	return orchestrator.Run(ctx, c)
}

func (w *world) text(t id.Task) string {
	var all bytes.Buffer
	for _, e := range w.events {
		if o, ok := e.(orchestrator.Output); ok && o.Task == t {
			all.WriteString(o.Text)
		}
	}
	return all.String()
}

func statuses(r *orchestrator.Report) string {
	var all []string
	for _, e := range r.Ended {
		all = append(all, strings.TrimPrefix(string(e.Task), "p#")+"="+string(e.Status))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func exits(code int) func(context.Context, int, io.Writer) int {
	return func(context.Context, int, io.Writer) int { return code }
}

func oneOf[T orchestrator.Event](w *world) (found []T) {
	for _, e := range w.events {
		if e, ok := e.(T); ok {
			found = append(found, e)
		}
	}
	return found
}

func lineOf(t *testing.T, e orchestrator.Event) map[string]any {
	t.Helper()
	b, err := orchestrator.Encode(time.Unix(0, 0), e)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return m
}
