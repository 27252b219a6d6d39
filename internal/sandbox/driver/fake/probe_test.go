package fake_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"brood/internal/base/id"
	"brood/internal/sandbox"
	"brood/internal/sandbox/driver/fake"
	"brood/internal/sandbox/drivertest"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t testing.TB) drivertest.Subject {
		w := fake.NewWorld()
		w.Program("probe", func() fake.Program { return &probe{} })
		t.Cleanup(func() {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
		return drivertest.Subject{
			Driver: w.Driver(), Again: func() sandbox.Driver { return w.Driver() },
			Root: sandbox.Root{EROFS: "/none"}, Probe: "/bin/probe",
			HalfMake: func(_ context.Context, sb id.Sandbox) error { return w.HalfMake(sb) },
			Kill:     func(_ context.Context, sb id.Sandbox) error { w.Kill(sb); return nil },
			HeapMiB:  1,
		}
	})
}

const tick = 5 * time.Millisecond

// probe is drivertest's program as a state machine. Its fields are what the
// real one holds in its kernel's objects.
type probe struct {
	N       int // ticks, or lines that a child answered
	Heap    []byte
	Half    string
	Deleted []byte
	Pipe    []byte
	Child   int
	Answers int
	Line    string
	Ended   bool
}

// Handle does what the word says.
func (s *probe) Handle(p *fake.Process, e fake.Event) {
	if len(p.Argv) < 2 {
		p.Exit(1)
		return
	}
	switch p.Argv[1] {
	case "state":
		s.state(p, e)
	case "ticks":
		s.ticks(p, e)
	case "terminal":
		s.terminal(p, e)
	case "daemon":
		if e.Kind == fake.Started {
			child, err := p.Spawn(p.Argv[0], "daemon-3", p.Argv[2])
			if err != nil {
				p.Exit(1)
				return
			}
			child.Detach()
			child.Run()
			p.Exit(0)
		}
	case "daemon-3":
		s.counts(p, e, func() string { return fmt.Sprint(s.N, p.PPID) })
	case "cat":
		switch e.Kind {
		case fake.Input:
			p.Print(e.Data)
		case fake.InputEnd:
			p.Exit(0)
		}
	case "child":
	default:
		p.Exit(1)
	}
}

// counts counts and keeps a text in the file that the command names.
func (s *probe) counts(p *fake.Process, e fake.Event, text func() string) {
	if e.Kind != fake.Started && e.Kind != fake.Woken {
		return
	}
	s.N++
	if err := p.WriteFile(p.Argv[2], []byte(text())); err != nil {
		p.Exit(1)
		return
	}
	p.WakeAfter(tick)
}

func (s *probe) ticks(p *fake.Process, e fake.Event) {
	s.counts(p, e, func() string {
		p.Print(fmt.Appendln(nil, s.N))
		return strconv.Itoa(s.N)
	})
}

func (s *probe) terminal(p *fake.Process, e fake.Event) {
	s.counts(p, e, func() string { return fmt.Sprint(s.N, p.TTY, p.TTY) })
	if e.Kind == fake.Input {
		s.Line += string(e.Data)
		if line, rest, whole := strings.Cut(s.Line, "\n"); whole {
			p.Print([]byte("you typed " + line + "\r\n"))
			s.Line = rest
		}
	}
}

func (s *probe) state(p *fake.Process, e fake.Event) {
	switch e.Kind {
	case fake.Started:
		s.Half, s.Deleted, s.Pipe = "second half", []byte("still here"), []byte("written before, read after")
		child, err := p.Spawn(p.Argv[0], "child")
		if err != nil || !p.Listen(4001) || !p.Listen(4002) {
			p.Exit(1)
			return
		}
		s.Child = child.PID
		fallthrough
	case fake.Woken:
		s.N++
		if err := p.WriteFile("/tmp/probe-count", make([]byte, s.N)); err != nil {
			p.Exit(1)
			return
		}
		p.WakeAfter(tick)
	case fake.Asked:
		answer, err := s.answer(p, strings.Fields(string(e.Data)))
		if err != nil {
			answer = "error: " + err.Error()
		}
		p.Answer([]byte(answer + "\n"))
	}
}

func (s *probe) answer(p *fake.Process, words []string) (string, error) {
	if len(words) == 0 {
		return "", errors.New("no question")
	}
	switch words[0] {
	case "count":
		return strconv.Itoa(s.N), nil
	case "heap":
		n, err := strconv.Atoi(words[1])
		s.Heap = bytes.Repeat([]byte("heap "), n<<10)
		return s.sum(), err
	case "sum":
		return s.sum(), nil
	case "half":
		rest := s.Half
		s.Half = ""
		return rest, nil
	case "deleted":
		return string(s.Deleted), nil
	case "change-deleted":
		copy(s.Deleted, words[1])
		return "done", nil
	case "pipe":
		rest := string(s.Pipe)
		s.Pipe = nil
		return rest, nil
	case "child":
		if !p.Alive(s.Child) {
			return "", errors.New("it is gone")
		}
		s.Answers++
		return fmt.Sprint(s.Answers, s.Child, p.Parent(s.Child)), nil
	case "write":
		return "done", p.WriteFile(words[1], []byte(words[2]))
	case "read":
		b, err := p.ReadFile(words[1])
		if err != nil {
			return "nothing", nil //nolint:nilerr // that is the answer
		}
		return string(b), nil
	case "say":
		p.Print([]byte(words[1] + "\n"))
		return "done", nil
	case "pid":
		return strconv.Itoa(p.PID), nil
	case "hostname":
		return p.Hostname(), nil
	}
	return "", fmt.Errorf("unknown question %q", words[0])
}

func (s *probe) sum() string {
	sum := sha256.Sum256(s.Heap)
	return fmt.Sprintf("%d %s", len(s.Heap)>>20, hex.EncodeToString(sum[:8]))
}
