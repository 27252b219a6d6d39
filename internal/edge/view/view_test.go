package view_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"brood/internal/base/id"
	"brood/internal/edge/view"
	"brood/internal/run"
	"brood/internal/run/orchestrator"
)

var update = flag.Bool("update", false, "write what is seen into the goldens")

var zero = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// story is a run as it may be: hits, misses, a failure and what it skips, a
// retry, a persistent task, lines that come in pieces.
func story() []orchestrator.Event {
	task := func(name string, deps ...id.Task) orchestrator.TaskInfo {
		t := id.Task(name)
		project, short := t.Split()
		return orchestrator.TaskInfo{Task: t, Project: project, Name: short, Deps: deps, ExpectedMS: 2000}
	}
	dev, hash := task("web#dev"), task("ui#build")
	dev.Persistent, hash.Logs = true, view.LogsHashOnly
	group := task("web#all", "ui#build")
	group.Group = true
	return []orchestrator.Event{
		orchestrator.Began{Run: "r-1", Root: "/ws", Concurrency: 2, Tasks: []orchestrator.TaskInfo{
			task("lib#build"), hash, dev, task("api#build", "lib#build"), task("api#test", "api#build"), task("web#test"), group,
		}},
		orchestrator.Keyed{Task: "lib#build", Key: key('a'), Cache: "hit"},
		orchestrator.Keyed{Task: "ui#build", Key: key('b'), Cache: "hit", Remote: true},
		orchestrator.Keyed{Task: "api#build", Key: key('c'), Cache: "miss"},
		orchestrator.Keyed{Task: "api#test", Key: key('d'), Cache: "miss"},
		orchestrator.Keyed{Task: "web#test", Key: key('e'), Cache: "off"},
		orchestrator.Started{Task: "web#dev", Attempt: 1},
		orchestrator.Output{Task: "lib#build", Text: "built lib\n", Replayed: true},
		orchestrator.Ended{Task: "lib#build", Status: run.Cached, Key: key('a'), SavedMS: 1500, Touched: true},
		orchestrator.Ended{Task: "ui#build", Status: run.Cached, Key: key('b'), SavedMS: 500, Remote: true},
		orchestrator.Started{Task: "api#build", Attempt: 1, Key: key('c')},
		orchestrator.Started{Task: "web#test", Attempt: 1, Key: key('e')},
		orchestrator.Output{Task: "web#dev", Text: "\x1bcready on :3000\n"},
		orchestrator.Output{Task: "api#build", Text: "compiling\npart"},
		orchestrator.Output{Task: "web#test", Text: "10%\r50%\r100%\n"},
		orchestrator.Output{Task: "api#build", Text: "ly done\nerror: no such thing | `x`\nlast words"},
		orchestrator.Ended{Task: "api#build", Status: run.Failed, Key: key('c'), Exit: 2, Attempts: 1, TookMS: 1200},
		orchestrator.Ended{Task: "api#test", Status: run.Skipped, Key: key('d'), Cause: "api#build"},
		orchestrator.Retrying{Task: "web#test", Attempt: 1, Exit: 1},
		orchestrator.Started{Task: "web#test", Attempt: 2, Key: key('e')},
		orchestrator.Output{Task: "web#test", Text: "better\n"},
		orchestrator.Warning{Message: "the remote cache does not answer"},
		orchestrator.Warning{Task: "web#test", Message: "100% odd"},
		orchestrator.Ended{Task: "web#test", Status: run.Success, Key: key('e'), Attempts: 2, TookMS: 2100},
		orchestrator.Ended{Task: "web#dev", Status: run.Success, Attempts: 1, TookMS: 3000},
		orchestrator.Finished{
			Run: "r-1", Status: run.Failed, Tasks: 6, Success: 2, Cached: 2, Failed: 1, Skipped: 1, WallMS: 65_000, WorkMS: 3300, SavedMS: 2000,
			Failures:     []id.Task{"api#build"},
			CriticalPath: []orchestrator.Step{{Task: "lib#build", TookMS: 4}, {Task: "api#build", TookMS: 1200}},
			Slowest:      []orchestrator.Step{{Task: "web#test", TookMS: 2100}, {Task: "api#build", TookMS: 1200}},
		},
	}
}

func key(c byte) run.Key { return run.Key(strings.Repeat(string(c), 64)) }

// tell shows a story, an event each 100 ms, with a tick after each.
func tell(t *testing.T, o view.Options, events []orchestrator.Event) string {
	t.Helper()
	var b bytes.Buffer
	o.Out = &b
	v := view.New(o)
	at := zero
	for _, e := range events {
		v.Event(at, e)
		at = at.Add(100 * time.Millisecond)
		v.Tick(at)
	}
	if err := v.Close(at); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGoldens(t *testing.T) {
	for name, o := range map[string]view.Options{
		"stream":      {},
		"bare":        {Bare: true},
		"colour":      {Colour: true},
		"grouped":     {Grouped: true},
		"github":      {Grouped: true, GitHub: true},
		"errors-only": {Logs: view.LogsErrorsOnly},
		"new-only":    {Logs: view.LogsNewOnly},
		"hash-only":   {Logs: view.LogsHashOnly},
		"none":        {Logs: view.LogsNone},
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, name+".txt", []byte(tell(t, o, story())))
		})
	}
}

func TestLive(t *testing.T) {
	events := story()
	text := tell(t, view.Options{Size: func() (int, int) { return 60, 10 }}, events[:16])
	golden(t, "live.txt", []byte(strings.ReplaceAll(text, "\x1b", "^[")))
	// What it painted is gone at the end, and only text is left.
	text = tell(t, view.Options{Size: func() (int, int) { return 60, 10 }}, events)
	if got, want := screen(text), tell(t, view.Options{}, events); got != want {
		t.Errorf("left on the screen:\n%s\nwanted:\n%s", got, want)
	}
}

// screen is what a terminal shows of a text that goes up and clears.
func screen(text string) string {
	var lines []string
	for len(text) > 0 {
		var up int
		if n, _ := fmt.Sscanf(text, "\r\x1b[%dA\x1b[J", &up); n == 1 {
			lines = lines[:len(lines)-up]
			text = text[strings.Index(text, "\x1b[J")+3:]
			continue
		}
		i := strings.IndexByte(text, '\n')
		if i < 0 {
			break
		}
		lines = append(lines, text[:i])
		text = text[i+1:]
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestStepSummary(t *testing.T) {
	r := &orchestrator.Report{}
	for _, e := range story() {
		switch e := e.(type) {
		case orchestrator.Ended:
			r.Ended = append(r.Ended, e)
		case orchestrator.Finished:
			r.Finished = e
		}
	}
	var b bytes.Buffer
	if err := view.WriteSummary(&b, r); err != nil {
		t.Fatal(err)
	}
	golden(t, "summary.md", b.Bytes())
}

func TestMuchOutputIsBounded(t *testing.T) {
	events := []orchestrator.Event{
		orchestrator.Began{Tasks: []orchestrator.TaskInfo{{Task: "a#b"}}},
		orchestrator.Started{Task: "a#b", Attempt: 1},
	}
	for range 40 {
		events = append(events, orchestrator.Output{Task: "a#b", Text: strings.Repeat("x\n", 1<<19)})
	}
	events = append(events, orchestrator.Ended{Task: "a#b", Status: run.Success})
	text := tell(t, view.Options{Grouped: true, Bare: true}, events)
	if n := len(text); n < 8<<20 || n > 17<<20 {
		t.Errorf("%d bytes of a block", n)
	}
	if !strings.Contains(text, "left out") {
		t.Error("it does not say that something is left out")
	}
}

func TestWriteErrorIsTold(t *testing.T) {
	v := view.New(view.Options{Out: broken{}})
	v.Event(zero, orchestrator.Warning{Message: "x"})
	v.Tick(zero)
	if err := v.Close(zero); !errors.Is(err, errBroken) {
		t.Errorf("%v", err)
	}
}

var errBroken = errors.New("broken pipe")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// TestATaskWithTheTerminalIsNotWrittenOver: what happens meanwhile is seen
// afterwards, and not without bound.
func TestATaskWithTheTerminalIsNotWrittenOver(t *testing.T) {
	ask, dev := id.Task("web#ask"), id.Task("web#dev")
	much := strings.Repeat("x\n", 1<<18)
	for _, lines := range []int{1, 40} {
		events := []orchestrator.Event{
			orchestrator.Began{Tasks: []orchestrator.TaskInfo{{Task: ask, Interactive: true}, {Task: dev, Persistent: true}}},
			orchestrator.Started{Task: dev, Attempt: 1},
			orchestrator.Keyed{Task: ask, Cache: "off"},
			orchestrator.Started{Task: ask, Attempt: 1},
		}
		o := view.Options{Lend: true, Bare: true, Grouped: true, Size: func() (int, int) { return 40, 10 }}
		var b bytes.Buffer
		o.Out = &b
		v := view.New(o)
		for _, e := range events {
			v.Tick(zero)
			v.Event(zero, e)
		}
		shown := b.Len()
		if got := screen(b.String()); got != "web:dev: runs until it is stopped\nweb:ask: not cached, runs\n" {
			t.Errorf("the task begins on %q", got)
		}
		for range lines {
			v.Event(zero, orchestrator.Output{Task: dev, Text: "first\n" + much + "last\n"})
			v.Tick(zero)
		}
		if b.Len() != shown {
			t.Errorf("%q was written while the task had the terminal", b.String()[shown:])
		}
		v.Event(zero, orchestrator.Ended{Task: ask, Status: run.Failed, Exit: 130, Signal: "SIGINT", Attempts: 1})
		v.Tick(zero)
		after := b.String()[shown:]
		cut := lines > 1
		if strings.Contains(after, "is left out") != cut || !strings.Contains(after, "last\nweb:ask: failed: ended by SIGINT") || len(after) > 9<<20 {
			t.Errorf("%d bytes afterwards, with %d times as much", len(after), lines)
		}
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what is seen; if it should be: go test ./internal/edge/view -update\nseen:\n%s\nwanted:\n%s", path, got, want)
	}
}

func TestWhatIsNotKeptIsTold(t *testing.T) {
	info := orchestrator.TaskInfo{Task: "web#build", Project: "web", Name: "build"}
	events := []orchestrator.Event{
		orchestrator.Began{Run: "r-1", Tasks: []orchestrator.TaskInfo{info}},
		orchestrator.Keyed{Task: "web#build", Key: key('a'), Cache: "hit"},
		orchestrator.Keyed{Task: "web#build", Key: key('a'), Cache: "miss", Unrestored: "a blob is damaged"},
		orchestrator.Started{Task: "web#build", Attempt: 1, Key: key('a')},
		orchestrator.Ended{Task: "web#build", Status: run.Success, Attempts: 1, TookMS: 5, Unsaved: "the disk is full"},
		orchestrator.Uploading{Left: 3},
		orchestrator.Uploading{Left: 2},
		orchestrator.Finished{Run: "r-1", Status: run.Success, Tasks: 1, Success: 1, Unsaved: 1},
	}
	text := tell(t, view.Options{}, events)
	for _, want := range []string{
		"web:build: cache miss aaaaaaaaaaaa, runs: what is stored cannot be restored (a blob is damaged)\n",
		"web:build: not saved: the disk is full\n", "uploading 3 results…\n", "Not saved  1 result: web:build\n",
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%q is not there once:\n%s", want, text)
		}
	}
	if strings.Contains(text, "cache hit") || strings.Contains(text, "uploading 2") {
		t.Errorf("too much:\n%s", text)
	}
	live := tell(t, view.Options{Size: func() (int, int) { return 100, 10 }}, events[:6])
	if !strings.Contains(live, "1 total · uploading 3 results…") {
		t.Errorf("the terminal does not say it: %q", live)
	}
}

// TestNamesStayText: a package's name and what others say can neither steer the
// terminal nor make lines of their own, which a workflow's log would obey.
func TestNamesStayText(t *testing.T) {
	const evil = "\x1b]0;x\x07\r\n::warning::forged\u009b\u202e\xff ##[error]x"
	name, first := id.Task("a"+evil+"#build"), id.Task("::warning::first#build")
	info := func(t id.Task) orchestrator.TaskInfo {
		project, short := t.Split()
		return orchestrator.TaskInfo{Task: t, Project: project, Name: short}
	}
	events := []orchestrator.Event{
		orchestrator.Began{Run: "r-1", Root: "/ws", Concurrency: 2, Tasks: []orchestrator.TaskInfo{info(name), info(first)}},
		orchestrator.Keyed{Task: name, Key: key('a'), Cache: "miss", Unrestored: evil},
		orchestrator.Started{Task: name, Attempt: 1, Key: key('a')},
		orchestrator.Output{Task: name, Text: "its own\n"},
		orchestrator.Warning{Task: name, Message: "odd" + evil},
		orchestrator.Warning{Message: "odd" + evil},
		orchestrator.Ended{Task: name, Status: run.Failed, Attempts: 1, Error: "no" + evil, Unsaved: "no" + evil},
		orchestrator.Ended{Task: first, Status: run.Success, Attempts: 1, Unsaved: "no"},
		orchestrator.Finished{
			Run: "r-1", Status: run.Failed, Tasks: 2, Failed: 1, Success: 1, Failures: []id.Task{name},
			CriticalPath: []orchestrator.Step{{Task: name}, {Task: first}}, Slowest: []orchestrator.Step{{Task: name}, {Task: first}},
		},
	}
	for _, o := range []view.Options{
		{}, {Grouped: true, GitHub: true}, {Size: func() (int, int) { return 200, 50 }},
	} {
		got := tell(t, o, events)
		if o.Size != nil {
			got = strings.NewReplacer("\x1b[J", "", "\x1b[1A", "", "\x1b[2A", "", "\x1b[3A", "", "\r", "").Replace(got)
		}
		if i := strings.IndexAny(got, "\x1b\x07\r\u009b\u202e"); i >= 0 || !utf8.ValidString(got) || strings.Contains(got, "##[") {
			t.Errorf("at %d:\n%q", i, got)
		}
		for line := range strings.SplitSeq(got, "\n") {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "::warning::f") {
				t.Errorf("forged: %q", line)
			}
		}
		if !strings.Contains(got, "its own\n") {
			t.Errorf("no output:\n%s", got)
		}
	}
	var b bytes.Buffer
	r := &orchestrator.Report{Finished: events[len(events)-1].(orchestrator.Finished), Ended: []orchestrator.Ended{events[6].(orchestrator.Ended)}}
	if err := view.WriteSummary(&b, r); err != nil || strings.ContainsAny(b.String(), "\x1b\x07\r") {
		t.Errorf("%v\n%q", err, b.String())
	}
}
