//go:build linux

package pid1_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"brood/internal/base/life"
	"brood/internal/sandbox/guest"
	"brood/internal/sandbox/guest/logs"
	"brood/internal/sandbox/guest/pid1"
	"brood/internal/sandbox/guest/proto"
)

// limit bounds every wait of a test. It is no measure: a test that is right
// never gets near it.
const limit = 60 * time.Second

func TestMain(m *testing.M) {
	// Orphans of programs under test come to this process, so that the
	// server under test sees them as its own.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "subreaper:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// ctxT shortens the literals of goroutines.
type ctxT = context.Context

// testOS is the machine as one test process sees it: its descendants are the
// sandbox, and what belongs to the machine is only remembered.
type testOS struct {
	mu       sync.Mutex
	hostname string
	stepped  time.Duration
	places   []string
}

func (*testOS) Processes() ([]pid1.Proc, error) {
	all, err := pid1.ListProcesses()
	if err != nil {
		return nil, err
	}
	parent := map[int]int{}
	for _, p := range all {
		parent[p.PID] = p.PPID
	}
	self := os.Getpid()
	return slices.DeleteFunc(all, func(p pid1.Proc) bool {
		for at := p.PPID; at > 0; at = parent[at] {
			if at == self {
				return false
			}
		}
		return true
	}), nil
}

func (*testOS) Signal(pid int, sig syscall.Signal) error { return syscall.Kill(pid, sig) }

func (o *testOS) SetHostname(name string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hostname = name
	return nil
}

func (o *testOS) Hostname() (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.hostname, nil
}

func (o *testOS) StepClock(by time.Duration) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stepped += by
	return nil
}

func (o *testOS) Protect(place string, readOnly bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.places = append(o.places, fmt.Sprint(place, " ", readOnly))
	return nil
}

// box is a server in this process and what a host has of it.
type box struct {
	t     testing.TB
	ctx   context.Context
	os    *testOS
	root  string
	logs  [2]string
	magic []byte
	host  *os.File // the host's end, kept open as a holder does
	group *life.Group
}

func newBox(t testing.TB, change ...func(*pid1.Config)) *box {
	t.Helper()
	b := &box{t: t, os: &testOS{hostname: "src"}, root: t.TempDir(), magic: make([]byte, proto.MagicSize)}
	rand.Read(b.magic)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	b.ctx = ctx
	dir := t.TempDir()
	var files [2]logs.File
	for i := range files {
		b.logs[i] = filepath.Join(dir, fmt.Sprint(i))
		f, err := os.OpenFile(b.logs[i], os.O_RDWR|os.O_CREATE, 0o600)
		check(t, err)
		t.Cleanup(func() { f.Close() })
		files[i] = f
	}
	var inside *os.File
	b.host, inside = socketpair(t)
	channel, err := guest.OpenChannel(inside)
	check(t, err)
	cfg := pid1.Config{Channel: channel, Magic: b.magic, Logs: files, OS: b.os, Root: b.root}
	for _, f := range change {
		f(&cfg)
	}
	s, err := pid1.New(cfg)
	check(t, err)
	b.group = life.NewGroup(ctx)
	b.group.Go("server", s.Serve)
	t.Cleanup(func() {
		killAll(t, b.os)
		if err := b.group.Stop(); err != nil {
			t.Error(err)
		}
		cancel()
		b.host.Close()
	})
	return b
}

// killAll kills what a test has left, also what appears meanwhile.
func killAll(t testing.TB, o pid1.OS) {
	for alive := true; alive; {
		alive = false
		all, err := o.Processes()
		check(t, err)
		for _, p := range all {
			if p.State != 'Z' {
				alive = true
				_ = syscall.Kill(p.PID, syscall.SIGKILL)
			}
		}
	}
}

func socketpair(t testing.TB) (a, b *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	return os.NewFile(uintptr(fds[0]), "host"), os.NewFile(uintptr(fds[1]), "guest")
}

// connect makes a client on a copy of the host's end, as each daemon does.
func (b *box) connect() *guest.Client {
	b.t.Helper()
	c := connect(b.ctx, b.t, b.host, b.magic)
	b.t.Cleanup(func() { c.Close() })
	return c
}

func connect(ctx context.Context, t testing.TB, host *os.File, magic []byte) *guest.Client {
	t.Helper()
	fd, err := unix.Dup(int(host.Fd()))
	check(t, err)
	ch, err := guest.OpenChannel(os.NewFile(uintptr(fd), "channel"))
	check(t, err)
	c, err := guest.Connect(ctx, ch, magic)
	check(t, err)
	return c
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sh(script string) proto.Command {
	return proto.Command{Argv: []string{"/bin/sh", "-c", script}}
}

// output runs a program to its end.
func output(ctx context.Context, t testing.TB, c *guest.Client, a guest.ExecArgs) (stdout, stderr string, status guest.ExitStatus) {
	t.Helper()
	x, err := c.Exec(ctx, a)
	check(t, err)
	defer x.Close()
	var out, errOut bytes.Buffer
	status, err = x.CopyTo(&out, &errOut)
	check(t, err)
	return out.String(), errOut.String(), status
}
