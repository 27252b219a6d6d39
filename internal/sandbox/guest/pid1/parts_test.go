//go:build linux

package pid1

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	rest := " 6 0 0 4194304 1 2 3 4 5 6 7 8 20 0 9 0 100 1000 20 0"
	for line, want := range map[string]Proc{
		"7 (sh) S 1 5" + rest:             {PPID: 1, Group: 5, Session: 6, State: 'S', Threads: 9},
		"7 (a) b) (c)) T 3 5" + rest:      {PPID: 3, Group: 5, Session: 6, State: 'T', Threads: 9},
		"7 (x\ny) Z 2 5" + rest + " junk": {PPID: 2, Group: 5, Session: 6, State: 'Z', Threads: 9},
	} {
		if got, flags, ok := parseStat([]byte(line)); !ok || got != want || flags != 4194304 {
			t.Errorf("%q: %+v, %d, %v", line, got, flags, ok)
		}
	}
	for _, line := range []string{"", "7 (sh", "7 (sh) S", "7 (sh) S x 5" + rest, "7 (sh) SS 1 5" + rest} {
		if got, _, ok := parseStat([]byte(line)); ok {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("7 (sh) S 1 5 6 0 0 4194304 1 2 3 4 5 6 7 8 20 0 9 0 100"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if p, _, ok := parseStat(line); ok && p.State == 0 {
			t.Fatalf("%q: %+v", line, p)
		}
	})
}

func TestLevelsPutParentsFirst(t *testing.T) {
	all := []Proc{{PID: 9, PPID: 5}, {PID: 5, PPID: 1}, {PID: 6, PPID: 9}, {PID: 7, PPID: 99}, {PID: 8, PPID: 8}}
	depth := map[int]int{}
	for d, level := range levels(all) {
		for _, p := range level {
			depth[p.PID] = d
		}
	}
	if depth[5] != 0 || depth[9] != 1 || depth[6] != 2 || depth[7] != 0 || len(depth) != len(all) {
		t.Fatalf("%v", depth)
	}
}

// A ring is compared with a plain slice of all that was ever written.
func TestRingKeepsWhatIsNotAcknowledged(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 4 {
		var r ring
		var all []byte
		for range 200 {
			if room := r.room(); room > 0 {
				p := make([]byte, 1+rnd.IntN(min(room, pumpBuffer)))
				for i := range p {
					p[i] = byte((len(all) + i) * 7919 >> 4)
				}
				r.put(p)
				all = append(all, p...)
			}
			if r.end != uint64(len(all)) || r.start > r.acked || len(r.buf) > ringSize {
				t.Fatalf("start %d, acked %d, end %d of %d, buffer %d", r.start, r.acked, r.end, len(all), len(r.buf))
			}
			from := r.start + uint64(rnd.Int64N(int64(r.end-r.start)+1))
			for at := from; at < min(r.end, from+100_000); {
				part := r.at(at)
				if len(part) == 0 || !bytes.Equal(part, all[at:at+uint64(len(part))]) {
					t.Fatalf("bytes from %d differ", at)
				}
				at += uint64(len(part))
			}
			if rnd.IntN(3) > 0 {
				r.ack(r.acked + uint64(rnd.Int64N(int64(r.end-r.acked)+1)))
				r.ack(r.end + 1) // nonsense
			}
		}
		if len(all) < ringSize {
			t.Fatalf("only %d bytes went through", len(all))
		}
	}
}

func TestRingDropsTheOldestWhenToldTo(t *testing.T) {
	var r ring
	p := make([]byte, pumpBuffer)
	for i := range 40 {
		p[0] = byte(i)
		r.put(p) // without asking for room
	}
	if r.end != 40*pumpBuffer || r.end-r.start != ringSize || r.acked != r.start || r.at(r.start)[0] != 24 {
		t.Fatalf("start %d, acked %d, end %d", r.start, r.acked, r.end)
	}
}

func TestRenameHost(t *testing.T) {
	for in, want := range map[string]string{
		"":                                  "127.0.1.1\tnew\n",
		"127.0.0.1 localhost\n":             "127.0.0.1 localhost\n127.0.1.1\tnew\n",
		"127.0.0.1 localhost":               "127.0.0.1 localhost\n127.0.1.1\tnew\n",
		"10.0.0.2 old old.net # old\nx y\n": "10.0.0.2\tnew\told.net\t# old\nx y\n",
		"10.0.0.2\tnew\n":                   "10.0.0.2\tnew\n",
		"# 10.0.0.2 old\n10.0.0.3 older\n":  "# 10.0.0.2 old\n10.0.0.3 older\n127.0.1.1\tnew\n",
		"10.0.0.2 old\n10.0.0.3 b old":      "10.0.0.2\tnew\n10.0.0.3\tb\tnew\n",
	} {
		if got := string(renameHost([]byte(in), "old", "new")); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	if got := string(renameHost([]byte("127.0.0.1 localhost\n"), "localhost", "new")); !strings.HasPrefix(got, "127.0.0.1 localhost\n") {
		t.Errorf("localhost was renamed: %q", got)
	}
}

func TestGate(t *testing.T) {
	g := newGate()
	ctx := t.Context()
	if !g.tryEnter() || g.closed() {
		t.Fatal("an open gate keeps out")
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	if err := g.close(short); !errors.Is(err, context.Canceled) || g.closed() {
		t.Fatalf("closing with somebody inside: %v, closed %v", err, g.closed())
	}
	g.leave()
	if err := g.close(ctx); err != nil || g.tryEnter() {
		t.Fatalf("a closed gate lets in: %v", err)
	}
	if err := g.enter(short); !errors.Is(err, context.Canceled) {
		t.Fatalf("waiting ended with %v", err)
	}
	g.open()
	g.open()
	if err := g.pass(ctx); err != nil || g.inside != 0 {
		t.Fatalf("%v, %d inside", err, g.inside)
	}
}

func TestParseSignal(t *testing.T) {
	for name, want := range map[string]int{"TERM": 15, "SIGTERM": 15, "kill": 9, "15": 15, "WINCH": 28} {
		if got, err := parseSignal(name); err != nil || int(got) != want {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "0", "65", "-9", "SIG", "NOSUCH"} {
		if got, err := parseSignal(name); err == nil {
			t.Errorf("%q is %d", name, got)
		}
	}
}

func TestEnvironmentFillsInAndLaterWins(t *testing.T) {
	s := &Server{env: []string{"A=identity", "B=identity"}}
	who := account{name: "u", home: "/home/u"}
	env := s.environment([]string{"B=own", "PATH=/x", "=bad", "bad", "HOME=/h"}, who, true)
	for key, want := range map[string]string{"A": "identity", "B": "own", "PATH": "/x:" + ToolDir, "HOME": "/h", "USER": "u", "TERM": "xterm-256color"} {
		if got := value(env, key); got != want {
			t.Errorf("%s=%q, want %q", key, got, want)
		}
	}
	if len(env) != 6 {
		t.Errorf("%q", env)
	}
}

// Without anybody attached a full buffer holds the program only for a while;
// whoever attaches is told where the output begins that is left.
func TestImpatientExecDropsItsOldestOutput(t *testing.T) {
	x := &exec{id: "x", child: &child{pid: 7, done: make(chan struct{})}, change: make(chan struct{}), looks: make(chan struct{})}
	sink := execSink{x, 0}
	p := make([]byte, pumpBuffer)
	for sink.room() >= len(p) {
		sink.put(p)
	}
	if sink.room() > 0 || x.out[0].start != 0 {
		t.Fatalf("room %d, start %d", sink.room(), x.out[0].start)
	}
	x.impatient = true
	for range 20 {
		if sink.room() < len(p) {
			t.Fatal("the program is still held")
		}
		sink.put(p)
	}
	a, r, err := x.attach([2]uint64{})
	if err != nil || r.Stdout == 0 || r.Stdout != x.out[0].start || x.out[0].end-r.Stdout != ringSize {
		t.Fatalf("%+v, %v", r, err)
	}
	if sink.room() > 0 {
		t.Fatal("with somebody attached nothing may be dropped")
	}
	x.acknowledge(a, 0, x.out[0].end)
	if sink.room() <= 0 {
		t.Fatal("what is acknowledged makes no room")
	}
}
