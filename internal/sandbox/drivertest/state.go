package drivertest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/sandbox/guest"
)

// scene is a source in the middle of its life, and two forks of it.
type scene struct {
	w      *world
	src    *box
	forks  []*box
	before int64 // the source's count before and after the capture
	after  int64
	stream *stream
	stdin  *guest.Attachment
	tty    *guest.Attachment
	pid    string // of the probe
}

// state captures one source with every kind of state, and looks at each in
// forks and source.
func state(w *world) {
	s := &scene{w: w, src: w.start("src", "state")}
	s.prepare()
	s.before = s.src.count()
	im := s.src.capture()
	s.after = s.src.count()
	for _, sb := range []id.Sandbox{"fork-a", "fork-b"} {
		s.forks = append(s.forks, w.fork(sb, im))
	}
	for _, part := range []struct {
		name string
		test func(*scene, *testing.T)
	}{
		{"Counter", (*scene).counter},
		{"OpenFile", (*scene).openFile},
		{"DeletedFile", (*scene).deletedFile},
		{"Server", (*scene).server},
		{"Child", (*scene).child},
		{"Daemon", (*scene).daemon},
		{"Pipe", (*scene).pipe},
		{"Terminal", (*scene).terminal},
		{"Exec", (*scene).exec},
		{"Disk", (*scene).disk},
		{"Identity", (*scene).identity},
		{"Output", (*scene).output},
	} {
		w.t.Run(part.name, func(t *testing.T) {
			outer := w.t
			w.t = t
			defer func() { w.t = outer }()
			part.test(s, t)
		})
	}
	s.stream.end(w, s.src.numbered("/tmp/ticks"))
	s.stdin.Close()
	s.tty.Close()
}

// prepare makes what lives beside the main command.
func (s *scene) prepare() {
	w, b := s.w, s.src
	s.stream = follow(w, b.exec(guest.ExecArgs{ID: "ticks"}, "ticks", "/tmp/ticks"))
	s.stdin = b.exec(guest.ExecArgs{ID: "stdin", Stdin: true}, "cat")
	s.tty = b.exec(guest.ExecArgs{ID: "tty", TTY: true, Cols: 80, Rows: 24}, "terminal", "/tmp/terminal")
	x := b.exec(guest.ExecArgs{ID: "daemon"}, "daemon", "/tmp/daemon")
	if exit, err := x.CopyTo(io.Discard, io.Discard); err != nil || exit.Code != 0 {
		w.t.Fatalf("start a daemon: %+v, %v", exit, err)
	}
	for _, file := range []string{"/tmp/ticks", "/tmp/terminal", "/tmp/daemon"} {
		b.numbered(file)
	}
	b.echo("before")
	b.want("done", "write", "/tmp/shared", "of-the-source")
	b.want("done", "say", "before")
	s.pid = b.ask("pid")
}

// echo sends a line through the exec called stdin and waits for it to come
// back.
func (b *box) echo(text string) {
	b.w.t.Helper()
	info := b.execInfo("stdin")
	_, err := b.c.WriteStdin(b.w.ctx, "stdin", int64(info.Stdin), []byte(text+"\n"))
	b.w.check(err)
	b.w.eventually("cat gives back what it got", func() bool {
		return b.execInfo("stdin").Stdout == info.Stdout+uint64(len(text))+1
	})
}

func (b *box) execInfo(name string) guest.ExecInfo {
	b.w.t.Helper()
	all, err := b.c.ListExecs(b.w.ctx)
	b.w.check(err)
	for _, x := range all {
		if x.ID == name {
			return x
		}
	}
	b.w.t.Fatalf("%s has no exec %s", b.id, name)
	return guest.ExecInfo{}
}

// counter: every fork's memory goes on from the instant of the capture (which
// World.fork has seen), and the source did not stop.
func (s *scene) counter(t *testing.T) {
	for _, f := range s.forks {
		first := f.count()
		if first < s.before {
			t.Errorf("%s counts %d; the source had %d before the capture", f.id, first, s.before)
		}
		f.counting(first)
		f.want(s.pid, "pid")
	}
	if now := s.src.count(); now < s.after || s.after < s.before {
		t.Errorf("the source counted %d, %d, %d", s.before, s.after, now)
	}
	s.src.counting(s.after)
}

// openFile: the offset is each one's own.
func (s *scene) openFile(*testing.T) {
	for _, b := range append(s.forks, s.src) {
		b.want("second half", "half")
		b.want("", "half")
	}
}

func (s *scene) deletedFile(*testing.T) {
	s.forks[0].want("done", "change-deleted", "STILL")
	s.forks[0].want("STILL here", "deleted")
	s.forks[1].want("still here", "deleted")
	s.src.want("still here", "deleted")
}

// server: sockets that listen go on in every fork, by poller and by a
// blocking accept, and each answers for itself.
func (s *scene) server(t *testing.T) {
	for _, b := range append(s.forks, s.src) {
		for _, port := range []uint16{pollPort, blockPort, blockPort} {
			if got, err := b.tryAsk(port, "hostname"); err != nil || got != string(b.id) {
				t.Errorf("port %d of %s answers %q, %v", port, b.id, got, err)
			}
		}
	}
}

// child: it is the same process of the same parent, with its pipes.
func (s *scene) child(t *testing.T) {
	for _, b := range append(s.forks, s.src) {
		first, second := strings.Fields(b.ask("child")), strings.Fields(b.ask("child"))
		if len(first) != 3 || len(second) != 3 || first[0] != "1" || second[0] != "2" || first[1] != second[1] || first[2] != s.pid {
			t.Errorf("the child in %s says %q and then %q; its parent is %s", b.id, first, second, s.pid)
		}
	}
}

// daemon: what an exec left behind as a daemon goes on, a child of process 1.
func (s *scene) daemon(t *testing.T) {
	for _, b := range append(s.forks, s.src) {
		if words := b.growing("/tmp/daemon"); len(words) != 1 || words[0] != "1" {
			t.Errorf("the daemon in %s says its parent is %q", b.id, words)
		}
	}
}

func (s *scene) pipe(*testing.T) {
	for _, b := range append(s.forks, s.src) {
		b.want("written before, read after", "pipe")
	}
}

// terminal: the session goes on in a fork, its terminal stays one, and nobody
// is attached to it; in the source it still can be typed into.
func (s *scene) terminal(t *testing.T) {
	for _, f := range s.forks {
		if words := f.growing("/tmp/terminal"); strings.Join(words, " ") != "true true" {
			t.Errorf("the terminal in %s: %q", f.id, words)
		}
	}
	if words := s.src.growing("/tmp/terminal"); strings.Join(words, " ") != "true true" {
		t.Errorf("the terminal in the source: %q", words)
	}
	_, err := s.src.c.WriteStdin(s.w.ctx, "tty", -1, []byte("hello\r"))
	s.w.check(err)
	var seen strings.Builder
	for !strings.Contains(seen.String(), "you typed hello") {
		out, err := s.tty.Next()
		if err != nil {
			t.Fatalf("the terminal said %q and then %v", seen.String(), err)
		}
		seen.Write(out.Data)
	}
}

// exec: in the source the streams go on unbroken; in a fork the programs go
// on, without streams.
func (s *scene) exec(t *testing.T) {
	for _, f := range s.forks {
		all, err := f.c.ListExecs(s.w.ctx)
		if err != nil || len(all) != 0 {
			t.Errorf("%s has execs %+v, %v", f.id, all, err)
		}
		f.growing("/tmp/ticks")
		s.w.eventually("cat in "+string(f.id)+" sees the end of its input", func() bool { return !f.runs("cat") })
	}
	s.src.echo("after")
	var text strings.Builder
	for !strings.HasSuffix(text.String(), "after\n") {
		out, err := s.stdin.Next()
		if err != nil {
			t.Fatalf("cat said %q and then %v", text.String(), err)
		}
		text.Write(out.Data)
	}
	if text.String() != "before\nafter\n" {
		t.Errorf("cat gave back %q", text.String())
	}
}

// disk: what one writes nobody else sees.
func (s *scene) disk(t *testing.T) {
	all := append(s.forks, s.src)
	for _, b := range all {
		b.want("of-the-source", "read", "/tmp/shared")
	}
	for _, b := range all {
		b.want("done", "write", "/tmp/shared", "of-"+string(b.id))
		b.want("done", "write", "/etc/only-"+string(b.id), "x")
	}
	for _, b := range all {
		b.want("of-"+string(b.id), "read", "/tmp/shared")
		for _, other := range all {
			want := "nothing"
			if other == b {
				want = "x"
			}
			b.want(want, "read", "/etc/only-"+string(other.id))
		}
	}
	// By the host's hand too.
	tar, err := oneFile("put", "by the host")
	s.w.check(err)
	_, err = s.forks[0].c.Put(s.w.ctx, guest.PutArgs{Dir: "/tmp"}, tar)
	s.w.check(err)
	if got, other := s.forks[0].read("/tmp/put"), s.forks[1].read("/tmp/put"); got != "by the host" || other != "" {
		t.Errorf("one fork reads %q, the other %q", got, other)
	}
}

func (s *scene) identity(t *testing.T) {
	for _, b := range append(s.forks, s.src) {
		b.want(string(b.id), "hostname")
		if file := b.read("/run/brood/fork.json"); !strings.Contains(file, `"uuid-`+string(b.id)+`"`) {
			t.Errorf("fork.json of %s is %s", b.id, file)
		}
	}
}

// output: the main command's goes to files of each one's own, and a fork's
// begins with the fork.
func (s *scene) output(t *testing.T) {
	for _, b := range append(s.forks, s.src) {
		want := "of-" + string(b.id) + "\n"
		b.want("done", "say", "of-"+string(b.id))
		if b == s.src {
			want = "before\n" + want
		}
		var got string
		s.w.eventually("what "+string(b.id)+" says is in its files", func() bool {
			got = b.said()
			return len(got) >= len(want)
		})
		if got != want {
			t.Errorf("%s said %q, not %q", b.id, got, want)
		}
	}
}

// heap: a large memory, whole in a fork and still in the source.
func heap(w *world) {
	src := w.start("src", "state")
	sum := src.ask("heap", fmt.Sprint(w.HeapMiB))
	im := src.capture()
	f := w.fork("fork", im)
	f.want(sum, "sum")
	src.want(sum, "sum")
}

// stream follows an exec that writes one number a line.
type stream struct {
	group *life.Group
	x     *guest.Attachment
	last  atomic.Int64
}

// follow reads in the background until end.
func follow(w *world, x *guest.Attachment) *stream {
	s := &stream{group: life.NewGroup(w.ctx), x: x}
	r, out := io.Pipe()
	s.group.Go("copy", func(context.Context) error {
		_, err := x.CopyTo(out, io.Discard)
		_ = out.CloseWithError(err) // never fails
		return nil
	})
	s.group.Go("stream", func(context.Context) error {
		defer r.Close() //nolint:errcheck // a pipe.s never fails
		for lines := bufio.NewScanner(r); lines.Scan(); {
			n := s.last.Add(1)
			if got := lines.Text(); got != fmt.Sprint(n) {
				return fmt.Errorf("line %d is %q", n, got)
			}
		}
		return nil
	})
	return s
}

// end waits until the stream has come to a number, and says whether it was
// unbroken up to there.
func (s *stream) end(w *world, at int) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("the stream comes to %d", at), func() bool {
		return s.last.Load() >= int64(at) || s.group.Context().Err() != nil
	})
	s.x.Close()
	if err := s.group.Wait(); err != nil {
		w.t.Errorf("follow an exec: %v", err)
	}
}
