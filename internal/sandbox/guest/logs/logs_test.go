package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"brood/internal/base/life"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type pair struct {
	t     *testing.T
	paths [2]string
	files [2]File
}

func newPair(t *testing.T) *pair {
	p := &pair{t: t}
	dir := t.TempDir()
	for i := range p.files {
		p.paths[i] = filepath.Join(dir, fmt.Sprint(i))
		f, err := os.OpenFile(p.paths[i], os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		p.files[i] = f
	}
	return p
}

func (p *pair) reader() *Reader {
	p.t.Helper()
	r, err := Open(p.paths)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { r.Close() })
	return r
}

func (p *pair) text(r *Reader) string {
	p.t.Helper()
	var b strings.Builder
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			p.t.Fatal(err)
		}
		b.Write(e.Data)
	}
}

func say(w *Writer, text string) {
	w.Write(Entry{Stream: Stdout, Time: time.Unix(0, 5), Data: []byte(text)})
}

func TestReaderSeesWhatIsWrittenAndGoesOn(t *testing.T) {
	p := newPair(t)
	w := NewWriter(p.files)
	r := p.reader()
	if got := p.text(r); got != "" {
		t.Fatalf("an empty log has %q", got)
	}
	w.Write(Entry{Stream: Stderr, Time: time.Unix(3, 7), Data: []byte("one\n")})
	e, err := r.Next()
	if err != nil || e.Stream != Stderr || !e.Time.Equal(time.Unix(3, 7)) || string(e.Data) != "one\n" {
		t.Fatalf("%+v, %v", e, err)
	}
	say(w, strings.Repeat("x", 3*MaxData+1))
	if got := p.text(r); len(got) != 3*MaxData+1 {
		t.Fatalf("%d bytes", len(got))
	}
}

// TestBoundEndsWithWhatIsWritten: what comes later is not for this reader, in
// the same segment or in another.
func TestBoundEndsWithWhatIsWritten(t *testing.T) {
	line := strings.Repeat("x", MaxData-1) + "\n"
	for _, later := range []int{1, 3 * DefaultLimit / MaxData} {
		p := newPair(t)
		w := NewWriter(p.files)
		none := p.reader()
		if err := none.Bound(); err != nil {
			t.Fatal(err)
		}
		say(w, "one\n")
		say(w, "two\n")
		r, tail := p.reader(), p.reader()
		if err := errors.Join(r.Bound(), tail.Bound(), tail.Tail(1)); err != nil {
			t.Fatal(err)
		}
		for range later {
			say(w, line)
		}
		if got := p.text(none); got != "" {
			t.Errorf("%d bytes of what was written later", len(got))
		}
		for want, r := range map[string]*Reader{"one\ntwo\n": r, "two\n": tail} {
			if got := p.text(r); later == 1 && got != want || strings.Contains(got, "x") {
				t.Errorf("%d bytes, want %q", len(got), want)
			}
		}
	}
}

func TestRotationKeepsTheBoundTheOrderAndTheEnd(t *testing.T) {
	p := newPair(t)
	w := NewWriter(p.files)
	w.SetLimit(1) // below the least
	slow, fast := p.reader(), p.reader()
	say(w, "first\n")
	if e, err := slow.Next(); err != nil || string(e.Data) != "first\n" {
		t.Fatalf("%q, %v", e.Data, err)
	}
	var want, got strings.Builder
	got.WriteString(p.text(fast))
	for i := range 40_000 {
		line := fmt.Sprintf("line %d\n", i)
		want.WriteString(line)
		say(w, line)
		if i%500 == 0 {
			got.WriteString(p.text(fast))
		}
	}
	got.WriteString(p.text(fast))
	if got.String() != "first\n"+want.String() || fast.Missed() {
		t.Fatalf("a reader that keeps up has %d of %d bytes, missed %v", got.Len(), want.Len()+6, fast.Missed())
	}
	for _, path := range p.paths {
		if info, err := os.Stat(path); err != nil || info.Size() > MinLimit {
			t.Fatalf("%d bytes, %v", info.Size(), err)
		}
	}
	rest := p.text(slow)
	if !slow.Missed() || slow.Missed() {
		t.Fatal("a reader that was overtaken is not told, or twice")
	}
	if len(rest) < MinLimit/4 || !strings.HasSuffix(want.String(), rest) {
		t.Fatalf("it has %d bytes that are not the log's end", len(rest))
	}
	if fresh := p.text(p.reader()); fresh != rest {
		t.Fatalf("a new reader has %d bytes, expected %d", len(fresh), len(rest))
	}
}

func TestTornAndForeignEndsAreLeftOut(t *testing.T) {
	p := newPair(t)
	w := NewWriter(p.files)
	say(w, "whole\n")
	say(w, "torn\n")
	content, err := os.ReadFile(p.paths[0])
	if err != nil {
		t.Fatal(err)
	}
	last := len(content) - recordHeader - len("torn\n")
	for n := last; n < len(content); n++ {
		if err := os.WriteFile(p.paths[0], content[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if got := p.text(p.reader()); got != "whole\n" {
			t.Fatalf("cut at %d: %q", n, got)
		}
	}
	// The segment that follows is read behind a torn one.
	next := appendRecord(appendSegment(nil, 2), Entry{Stream: Stdout, Data: []byte("next\n")})
	if err := os.WriteFile(p.paths[1], next, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := p.text(p.reader()); got != "whole\nnext\n" {
		t.Fatalf("%q", got)
	}
}

func TestDetect(t *testing.T) {
	p := newPair(t)
	w := NewWriter(p.files)
	say(w, "a\n")
	if err := w.Detect(); err != nil {
		t.Fatal(err)
	}
	say(w, "b\n")
	if got := p.text(p.reader()); got != "a\nb\n" {
		t.Fatalf("the same files: %q", got)
	}
	// Another writer, as after a restart of everything: old content is older.
	again := NewWriter(p.files)
	if err := again.Detect(); err != nil {
		t.Fatal(err)
	}
	say(again, "c\n")
	if got := p.text(p.reader()); got != "a\nb\nc\n" {
		t.Fatalf("another writer: %q", got)
	}
	// New empty files under the same descriptors: a fork.
	for _, path := range p.paths {
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Detect(); err != nil {
		t.Fatal(err)
	}
	say(w, "d\n")
	if got := p.text(p.reader()); got != "d\n" {
		t.Fatalf("empty files: %q", got)
	}
}

func TestTail(t *testing.T) {
	p := newPair(t)
	w := NewWriter(p.files)
	for _, part := range []string{"one\ntw", "o\nthree\n", "four\nfi"} {
		say(w, part)
	}
	for n, want := range []string{"", "fi", "four\nfi", "three\nfour\nfi", "two\nthree\nfour\nfi", "one\ntwo\nthree\nfour\nfi", "one\ntwo\nthree\nfour\nfi"} {
		r := p.reader()
		if err := r.Tail(n); err != nil {
			t.Fatal(err)
		}
		if got := p.text(r); got != want {
			t.Errorf("last %d lines: %q, want %q", n, got, want)
		}
		if n == 0 {
			say(w, "ve\n")
			if got := p.text(r); got != "ve\n" {
				t.Errorf("what follows nothing: %q", got)
			}
			w = NewWriter(p.files)
			for _, path := range p.paths {
				if err := os.Truncate(path, 0); err != nil {
					t.Fatal(err)
				}
			}
			for _, part := range []string{"one\ntw", "o\nthree\n", "four\nfi"} {
				say(w, part)
			}
		}
	}
}

func TestFollowWhileWriting(t *testing.T) {
	p := newPair(t)
	w := NewWriter(p.files)
	const n = 20_000
	g := life.NewGroup(t.Context())
	g.Go("writer", func(context.Context) error {
		for i := range n {
			say(w, fmt.Sprintf("%d\n", i))
		}
		return nil
	})
	r := p.reader()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got bytes.Buffer
	last := fmt.Sprintf("%d\n", n-1)
	err := r.Follow(ctx, time.Millisecond, func(e Entry) error {
		got.Write(e.Data)
		if string(e.Data) == last {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(got.String(), "\n"); lines != n || r.Missed() {
		t.Fatalf("%d lines of %d, missed %v", lines, n, r.Missed())
	}
	stop := errors.New("enough")
	say(w, "x")
	if err := r.Follow(t.Context(), time.Millisecond, func(Entry) error { return stop }); !errors.Is(err, stop) {
		t.Fatalf("follow ended with %v", err)
	}
}

// fullDisk fails writes beyond a size, after writing a part.
type fullDisk struct {
	File
	room int64
	err  error
}

func (f *fullDisk) WriteAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) <= f.room {
		return f.File.WriteAt(p, off)
	}
	n, err := f.File.WriteAt(p[:max(0, f.room-off)], off)
	return n, errors.Join(f.err, err)
}

func TestAFullDiskLosesOutputNotTheLog(t *testing.T) {
	p := newPair(t)
	disk := &fullDisk{File: p.files[0], room: 60, err: &os.PathError{Op: "write", Path: "log", Err: syscall.ENOSPC}}
	p.files[0] = disk
	w := NewWriter(p.files)
	say(w, "before\n")
	say(w, "lost, as it is longer than what fits\n")
	if w.Dropped() != 37 {
		t.Fatalf("dropped %d bytes", w.Dropped())
	}
	// What tells of it would fit here, but not together with the next piece.
	disk.room = 60 + 60
	say(w, strings.Repeat("x", 999)+"\n")
	disk.room = 1 << 20
	say(w, "after\n")
	const told = "[brood: 1037 bytes of output were lost: the disk was full]\n"
	r := p.reader()
	if got := p.text(r); got != "before\n"+told+"after\n" {
		t.Fatalf("%q", got)
	}
	if r = p.reader(); r.Tail(2) != nil {
		t.Fatal("the last two lines cannot be read")
	}
	if e, err := r.Next(); err != nil || e.Stream != Stderr || string(e.Data) != told {
		t.Errorf("in the place of what was lost: %+v, %v", e, err)
	}
	w.End()
	if got := p.text(r); got != "after\n" {
		t.Errorf("then %q", got)
	}
}

// What was lost last is told of at the end, and not to a fork's log.
func TestLostAtTheEnd(t *testing.T) {
	p := newPair(t)
	disk := &fullDisk{File: p.files[0], err: syscall.EIO}
	p.files[0] = disk
	w := NewWriter(p.files)
	say(w, "lost")
	w.End()
	disk.room = 1 << 20
	w.End()
	w.End()
	const told = "[brood: 4 bytes of output were lost: it could not be written]\n"
	if got := p.text(p.reader()); got != told {
		t.Fatalf("%q", got)
	}
	disk.room = 0
	say(w, "lost again")
	disk.room = 1 << 20
	for _, path := range p.paths {
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Detect(); err != nil {
		t.Fatal(err)
	}
	say(w, "the fork's\n")
	if got := p.text(p.reader()); got != "the fork's\n" {
		t.Errorf("%q", got)
	}
}

func FuzzReader(f *testing.F) {
	one := appendRecord(appendSegment(nil, 1), Entry{Stream: Stdout, Data: []byte("one\n")})
	two := appendRecord(appendSegment(nil, 2), Entry{Stream: Stderr, Data: []byte("two")})
	f.Add(one, two, 1)
	f.Add(two, one[:len(one)-1], 0)
	f.Add([]byte("BROODLOG\xff\xff\xff\xff\xff\xff\xff\xff"), two, 3)
	f.Fuzz(func(t *testing.T, a, b []byte, lines int) {
		dir := t.TempDir()
		paths := [2]string{dir + "/0", dir + "/1"}
		for i, content := range [][]byte{a, b} {
			if err := os.WriteFile(paths[i], content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Open(paths)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := r.Tail(lines); err != nil {
			t.Fatal(err)
		}
		total := 0
		for {
			e, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			total += len(e.Data)
		}
		if total > len(a)+len(b) {
			t.Fatalf("%d bytes out of %d", total, len(a)+len(b))
		}
	})
}
