package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"brood/client"
	"brood/internal/base/errs"
)

var text = strings.Repeat("the quick brown fox\n", 200)

func TestExecPassesStreams(t *testing.T) {
	c := serve(t).dial(t)
	var out, errOut bytes.Buffer
	exit, err := c.Exec(t.Context(), "a", client.ExecOptions{Argv: []string{"cat"}}, client.Streams{In: strings.NewReader(text), Out: &out, Err: &errOut})
	if err != nil || exit.GetCode() != 3 || out.String() != text || errOut.String() != text {
		t.Errorf("%v, %v, %d and %d bytes of %d", exit, err, out.Len(), errOut.Len(), len(text))
	}
}

// piecewise reads a text in small pieces and says when it has come to the end.
type piecewise struct {
	text string
	end  chan struct{}
}

func (p *piecewise) Read(b []byte) (int, error) {
	if p.text == "" {
		close(p.end)
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), 100)], p.text)
	p.text = p.text[n:]
	return n, nil
}

// TestInputIsReadWhileItIsSent: the first bytes are on their way until the last
// ones are read.
func TestInputIsReadWhileItIsSent(t *testing.T) {
	s := serve(t)
	in := &piecewise{text: text, end: make(chan struct{})}
	s.execs.trip = func(stage string, _ int) {
		if stage == "stdin" {
			select {
			case <-in.end:
			case <-t.Context().Done():
			}
		}
	}
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	exit, err := s.dial(t).Exec(ctx, "a", client.ExecOptions{Argv: []string{"cat"}}, client.Streams{In: in, Out: &out})
	if err != nil || exit.GetCode() != 3 || out.String() != text {
		t.Errorf("%v, %v, %d bytes of %d", exit, err, out.Len(), len(text))
	}
}

// TestExecSurvivesLostConnections cuts input and output many times; every byte
// arrives once.
func TestExecSurvivesLostConnections(t *testing.T) {
	s := serve(t)
	var cuts atomic.Int32
	s.execs.trip = func(stage string, n int) {
		if stage == "stdin" && n > 1500 && cuts.Add(1) <= 2 || stage == "output" && n%100 == 99 && cuts.Add(1) <= 12 || stage == "exit" && cuts.Add(1) <= 13 {
			s.drop()
		}
	}
	var out, errOut bytes.Buffer
	exit, err := s.dial(t).Exec(t.Context(), "a", client.ExecOptions{Argv: []string{"cat"}}, client.Streams{In: strings.NewReader(text), Out: &out, Err: &errOut})
	if err != nil || exit.GetCode() != 3 || out.String() != text || errOut.String() != text {
		t.Errorf("%v, %v, %d and %d bytes of %d", exit, err, out.Len(), errOut.Len(), len(text))
	}
	if cuts.Load() < 3 || s.count("/brood.v1.ExecService/AttachExec") == 0 {
		t.Errorf("%d cuts: nothing was proved", cuts.Load())
	}
}

func TestExecThatDoesNotStart(t *testing.T) {
	c := serve(t).dial(t)
	exit, err := c.Exec(t.Context(), "a", client.ExecOptions{Argv: []string{"nope"}}, client.Streams{In: strings.NewReader(text)})
	if err != nil || exit.GetCode() != 127 || exit.GetError() != "nope: not found" {
		t.Errorf("%v, %v", exit, err)
	}
	_, err = c.Exec(t.Context(), "gone", client.ExecOptions{Argv: []string{"cat"}}, client.Streams{})
	want(t, err, errs.NotFound, "gone")
}

// TestExecEndsWhileInputIsSilent: nobody types, and the command ends.
func TestExecEndsWhileInputIsSilent(t *testing.T) {
	for name, make := range map[string]func(t *testing.T) (io.Reader, func()){
		"pipe of the system": func(t *testing.T) (io.Reader, func()) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			return r, func() { r.Close(); w.Close() }
		},
		"a reader that cannot be interrupted": func(*testing.T) (io.Reader, func()) {
			r, w := io.Pipe()
			return r, func() { w.Close() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			c := s.dial(t)
			in, end := make(t)
			defer end()
			e, err := c.StartExec(t.Context(), "a", client.ExecOptions{Argv: []string{"cat"}, Stdin: true})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if e.ID() != "x-1" || e.PID() != 42 {
				t.Errorf("%s %d", e.ID(), e.PID())
			}
			if err := e.Resize(t.Context(), 100, 30); err != nil || s.execs.size != [2]uint32{100, 30} {
				t.Errorf("%v, %v", err, s.execs.size)
			}
			if err := e.Signal(t.Context(), 15); err != nil || len(s.execs.signals) != 1 || s.execs.signals[0] != 15 {
				t.Errorf("%v, %v", err, s.execs.signals)
			}
			exit, err := e.Wait(t.Context(), client.Streams{In: in})
			if err != nil || exit.GetCode() != 3 {
				t.Errorf("%v, %v", exit, err)
			}
		})
	}
}

func TestExecGoesOnWhereItWas(t *testing.T) {
	s := serve(t)
	c := s.dial(t)
	e, err := c.StartExec(t.Context(), "a", client.ExecOptions{Argv: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.execs.trip = func(stage string, _ int) {
		if stage == "stdin" {
			cancel()
		}
	}
	_, err = e.Wait(ctx, client.Streams{In: strings.NewReader("one ")})
	want(t, err, errs.Canceled, "")
	s.execs.trip = func(string, int) {}
	var out bytes.Buffer
	// Somebody else attaches; input goes on after what was taken.
	other := c.AttachExec("a", e.ID(), 0, 0)
	exit, err := other.Wait(t.Context(), client.Streams{In: strings.NewReader("two"), Out: &out})
	if err != nil || exit.GetCode() != 3 || out.String() != "one two" {
		t.Errorf("%v, %v, %q", exit, err, out.String())
	}
	var rest bytes.Buffer
	tail := c.AttachExec("a", e.ID(), 4, 0)
	if _, err := tail.Wait(t.Context(), client.Streams{Out: &rest}); err != nil || rest.String() != "two" {
		t.Errorf("%v, %q", err, rest.String())
	}
	if again, err := tail.Wait(t.Context(), client.Streams{}); err != nil || again.GetCode() != 3 {
		t.Errorf("a second Wait: %v, %v", again, err)
	}
}

type brokenEnd struct{}

var errBroken = errors.New("broken end")

func (brokenEnd) Read([]byte) (int, error)  { return 0, errBroken }
func (brokenEnd) Write([]byte) (int, error) { return 0, errBroken }

func TestExecTellsOfBrokenEnds(t *testing.T) {
	c := serve(t).dial(t)
	_, err := c.Exec(t.Context(), "a", client.ExecOptions{Argv: []string{"cat"}}, client.Streams{In: brokenEnd{}})
	if !errors.Is(err, errBroken) {
		t.Errorf("input: %v", err)
	}
	c = serve(t).dial(t)
	_, err = c.Exec(t.Context(), "a", client.ExecOptions{Argv: []string{"cat"}}, client.Streams{In: strings.NewReader(text), Out: brokenEnd{}})
	if !errors.Is(err, errBroken) {
		t.Errorf("output: %v", err)
	}
}

// TestExecIsDetached: the stream brings the start alone, and whoever wants to
// know attaches.
func TestExecIsDetached(t *testing.T) {
	s := serve(t)
	c := s.dial(t)
	e, err := c.StartExec(t.Context(), "a", client.ExecOptions{Argv: []string{"cat"}, Detach: true})
	if err != nil || e.ID() != "x-1" || e.PID() != 42 {
		t.Fatalf("%+v, %v", e, err)
	}
	again := c.AttachExec("a", e.ID(), 0, 0)
	exit, err := again.Wait(t.Context(), client.Streams{In: strings.NewReader(text)})
	if err != nil || exit.GetCode() != 3 || s.count("/brood.v1.ExecService/AttachExec") == 0 {
		t.Errorf("%v, %v", exit, err)
	}
}

// TestExecOutlivesADaemonThatNobodyStartsAgain: whoever watches a command may
// start the next daemon.
func TestExecOutlivesADaemonThatNobodyStartsAgain(t *testing.T) {
	s := serve(t)
	c := s.dial(t)
	e, err := c.StartExec(t.Context(), "a", client.ExecOptions{Argv: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s.stop()
	started := 0
	c.WhenGone(func(context.Context) error {
		if started++; started == 1 {
			s.start()
		}
		return nil
	})
	var out bytes.Buffer
	exit, err := e.Wait(t.Context(), client.Streams{In: strings.NewReader(text), Out: &out})
	if err != nil || exit.GetCode() != 3 || out.String() != text || started == 0 {
		t.Errorf("%v, %v, %d bytes of %d, started %d times", exit, err, out.Len(), len(text), started)
	}
}
