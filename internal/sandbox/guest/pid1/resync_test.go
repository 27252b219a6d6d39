//go:build linux

package pid1_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest"
	"brood/internal/sandbox/guest/proto"
)

// doomed is a client whose end is that of a killed daemon: its descriptor is
// closed and nothing else is said.
func (b *box) doomed() *guest.Client {
	b.t.Helper()
	fd, err := unix.Dup(int(b.host.Fd()))
	check(b.t, err)
	ch, err := guest.OpenChannel(os.NewFile(uintptr(fd), "channel"))
	check(b.t, err)
	// Only reading, writing and closing: no deadline, so no parting word.
	c, err := guest.Connect(b.ctx, struct{ io.ReadWriteCloser }{ch}, b.magic)
	check(b.t, err)
	b.t.Cleanup(func() { c.Close() })
	return c
}

func TestConnectAfterTornWrites(t *testing.T) {
	b := newBox(t)
	raw := func(p []byte) {
		for len(p) > 0 {
			n, err := unix.Write(int(b.host.Fd()), p)
			check(t, err)
			p = p[n:]
		}
	}
	record := proto.AppendRecords(nil, []byte("some bytes of a session that was never finished"))
	hello := append(append([]byte{}, b.magic...), make([]byte, proto.NonceSize)...)
	var epoch uint64
	for _, torn := range [][]byte{
		{}, record[:1], record[:8], record[:len(record)-1], record,
		b.magic[:5], b.magic, hello[:40], append(hello[:40:40], b.magic[:7]...),
		{0xff, 0xff, 0xff, 0xff, 1, 2, 3}, make([]byte, 100_000),
		append(record[:20:20], hello...),
	} {
		raw(torn)
		c := b.doomed()
		if _, err := c.Ping(b.ctx); err != nil {
			t.Fatalf("after %d torn bytes: %v", len(torn), err)
		}
		if e := c.Hello().Epoch; e <= epoch {
			t.Fatalf("epoch %d after %d", e, epoch)
		} else {
			epoch = e
		}
		c.Close()
	}
}

// A daemon dies while a program writes more than anybody read; the next one
// goes on at the byte where it was.
func TestOutputSurvivesKilledDaemons(t *testing.T) {
	b := newBox(t)
	const lines = 300_000
	var want strings.Builder
	for i := range lines {
		fmt.Fprintln(&want, i)
	}
	c := b.doomed()
	x, err := c.Exec(b.ctx, guest.ExecArgs{ID: "seq", Command: sh(fmt.Sprintf("seq 0 %d; exit 9", lines-1))})
	check(t, err)
	var got strings.Builder
	killed := 0
	for {
		out, err := x.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		check(t, err)
		if out.Offset != uint64(got.Len()) {
			t.Fatalf("output at %d, expected %d", out.Offset, got.Len())
		}
		got.Write(out.Data)
		if killed == 0 || rand.IntN(8) == 0 {
			c.Close()
			killed++
			c = b.doomed()
			x, err = c.Attach(b.ctx, guest.AttachArgs{ID: "seq", Stdout: uint64(got.Len())})
			check(t, err)
		}
	}
	if got.String() != want.String() {
		t.Fatalf("output differs: %d bytes, expected %d", got.Len(), want.Len())
	}
	if status, _ := x.Exit(); status.Code != 9 || killed == 0 {
		t.Fatalf("exit %+v after %d killed daemons", status, killed)
	}
	status, err := c.WaitExec(b.ctx, "seq")
	check(t, err)
	if status.Code != 9 {
		t.Fatalf("exit asked for again: %+v", status)
	}
	check(t, c.ForgetExec(b.ctx, "seq"))
	if _, err := c.WaitExec(b.ctx, "seq"); !errs.Is(err, errs.NotFound) {
		t.Fatalf("a forgotten exec: %v", err)
	}
}

func TestUnreadOutputHoldsTheProgramAndIsKept(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	const total = 3 << 20
	x, err := c.Exec(b.ctx, guest.ExecArgs{ID: "big", Command: sh(fmt.Sprintf("head -c %d /dev/zero; echo done >&2", total))})
	check(t, err)
	var info guest.ExecInfo
	last := uint64(1)
	b.eventually("the program is held", func() bool {
		list, err := c.ListExecs(b.ctx)
		check(t, err)
		info = list[0]
		same := info.Stdout == last
		last = info.Stdout
		return same && info.Stdout > 512<<10
	})
	if info.Stdout >= 1<<20 || info.Exit != nil || info.Stderr != 0 {
		t.Fatalf("not held: %+v", info)
	}
	var n int64
	var errOut strings.Builder
	_, err = x.CopyTo(countWriter{&n}, &errOut)
	check(t, err)
	if n != total || errOut.String() != "done\n" {
		t.Fatalf("%d bytes, %q", n, errOut.String())
	}
}

type countWriter struct{ n *int64 }

func (w countWriter) Write(p []byte) (int, error) { *w.n += int64(len(p)); return len(p), nil }

func TestASecondAttachmentTakesOver(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	x, err := c.Exec(b.ctx, guest.ExecArgs{ID: "cat", Command: sh("cat"), Stdin: true})
	check(t, err)
	_, err = c.WriteStdin(b.ctx, "cat", 0, []byte("abc"))
	check(t, err)
	if out, err := x.Next(); err != nil || string(out.Data) != "abc" {
		t.Fatalf("%q, %v", out.Data, err)
	}
	// The same input again is known; what goes beyond it is new.
	n, err := c.WriteStdin(b.ctx, "cat", 1, []byte("bcdef"))
	if err != nil || n != 6 {
		t.Fatalf("%d, %v", n, err)
	}
	if _, err := c.WriteStdin(b.ctx, "cat", 99, []byte("x")); !errs.Is(err, errs.FailedPrecondition) {
		t.Fatalf("input with a hole: %v", err)
	}
	y, err := c.Attach(b.ctx, guest.AttachArgs{ID: "cat"})
	check(t, err)
	if y.Stdin != 6 {
		t.Fatalf("stdin at %d", y.Stdin)
	}
	for {
		if _, err = x.Next(); err != nil {
			break
		}
	}
	if !errs.Is(err, errs.Stale) {
		t.Fatalf("the first attachment: %v", err)
	}
	check(t, c.CloseStdin(b.ctx, "cat"))
	var all strings.Builder
	status, err := y.CopyTo(&all, &all)
	if err != nil || status.Code != 0 || all.String() != "abcdef" {
		t.Fatalf("%q %+v %v", all.String(), status, err)
	}
	if _, err := c.Attach(b.ctx, guest.AttachArgs{ID: "cat", Stdout: 7}); !errs.Is(err, errs.InvalidArgument) {
		t.Fatalf("attach behind the end: %v", err)
	}
	if _, err := c.WriteStdin(b.ctx, "cat", -1, []byte("x")); !errs.Is(err, errs.FailedPrecondition) {
		t.Fatalf("input after its end: %v", err)
	}
}

func TestCallsEndWithTheirContext(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	_, err := c.Start(b.ctx, guest.StartArgs{Command: sh("sleep 1000")})
	check(t, err)
	x, err := c.Exec(b.ctx, guest.ExecArgs{ID: "deaf", Command: sh("sleep 1000"), Stdin: true})
	check(t, err)
	ctx, cancel := context.WithCancel(b.ctx)
	results := make(chan error, 3)
	b.group.Go("main", func(context.Context) error { _, err := c.WaitMain(ctx); results <- err; return nil })
	b.group.Go("exec", func(context.Context) error { _, err := c.WaitExec(ctx, "deaf"); results <- err; return nil })
	b.group.Go("stdin", func(context.Context) error {
		_, err := c.WriteStdin(ctx, "deaf", -1, make([]byte, 3<<20))
		results <- err
		return nil
	})
	b.eventually("the pipe is full", func() bool {
		list, err := c.ListExecs(b.ctx)
		check(t, err)
		return list[0].Stdin >= 64<<10
	})
	cancel()
	for range 3 {
		if err := <-results; !errs.Is(err, errs.Canceled) {
			t.Errorf("a call ended with %v", err)
		}
	}
	// The write that was given up does not block the next one for ever.
	check(t, c.Signal(b.ctx, "deaf", "KILL"))
	if _, err := x.Next(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	c.Close()
	if _, err := c.Ping(b.ctx); !errs.Is(err, errs.Unavailable) {
		t.Fatalf("a closed client: %v", err)
	}
	<-c.Done()
}
