//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest"
	"brood/internal/sandbox/guest/logs"
	"brood/internal/sandbox/guest/proto"
)

// program is the built program, made once for all tests.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "brood-guest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = filepath.Join(dir, "brood-guest")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the guest: %v: %s\n", err, text)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// limit bounds every wait; a test that is right never gets near it.
const limit = 60 * time.Second

// world makes the namespaces a sandbox of its own: its /proc, and folders
// that the guest writes to which are not the machine's.
const world = `set -e
mount -t proc proc /proc
mkdir "$1/etc"
for f in passwd group nsswitch.conf ld.so.cache; do [ -e /etc/$f ] && cp /etc/$f "$1/etc/$f"; done
echo 00000000000000000000000000000000 > "$1/etc/machine-id"
echo "127.0.0.1 localhost" > "$1/etc/hosts"
mount --bind "$1/etc" /etc
for d in /run /var/lib/dbus; do [ ! -d $d ] || mount -t tmpfs tmpfs $d; done
echo 00000000000000000000000000000000 > /run/old-id
[ ! -d /var/lib/dbus ] || cp /run/old-id /var/lib/dbus/machine-id
exec "$2" init`

// sandbox is a real guest program as PID 1 of its own namespaces.
type sandbox struct {
	t     *testing.T
	ctx   context.Context
	cmd   *exec.Cmd
	host  *os.File
	magic []byte
	logs  [2]string
	dir   string
}

func boot(t *testing.T) *sandbox {
	t.Helper()
	s := &sandbox{t: t, magic: make([]byte, proto.MagicSize), dir: t.TempDir()}
	rand.Read(s.magic)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	s.ctx = ctx
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	s.host = os.NewFile(uintptr(fds[0]), "host")
	inside := os.NewFile(uintptr(fds[1]), "guest")
	defer inside.Close()
	diag, err := os.Create(filepath.Join(s.dir, "diag"))
	check(t, err)
	defer diag.Close()
	extra := []*os.File{inside}
	for i := range s.logs {
		s.logs[i] = filepath.Join(s.dir, fmt.Sprint("log", i))
		f, err := os.OpenFile(s.logs[i], os.O_RDWR|os.O_CREATE, 0o600)
		check(t, err)
		defer f.Close()
		extra = append(extra, f)
	}
	s.cmd = exec.Command("/bin/sh", "-c", world, "sh", s.dir, program)
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), magicEnv + "=" + hex.EncodeToString(s.magic)}
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.ExtraFiles = diag, diag, extra
	s.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := s.cmd.Start(); err != nil {
		cancel()
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EACCES) {
			t.Skipf("SKIPPED: this machine does not let us make user namespaces: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.host.Close()
		cancel()
		if t.Failed() {
			text, _ := os.ReadFile(diag.Name())
			t.Logf("the guest said: %s", text)
		}
	})
	return s
}

func (s *sandbox) connect() *guest.Client {
	s.t.Helper()
	fd, err := unix.Dup(int(s.host.Fd()))
	check(s.t, err)
	ch, err := guest.OpenChannel(os.NewFile(uintptr(fd), "channel"))
	check(s.t, err)
	c, err := guest.Connect(s.ctx, ch, s.magic)
	check(s.t, err)
	s.t.Cleanup(func() { c.Close() })
	return c
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sh(script string) guest.Command {
	return guest.Command{Argv: []string{"/bin/sh", "-c", script}}
}

var execs int

// run runs a script to its end and returns what it wrote.
func (s *sandbox) run(c *guest.Client, script string, tty bool) string {
	s.t.Helper()
	execs++
	x, err := c.Exec(s.ctx, guest.ExecArgs{ID: fmt.Sprint("run-", execs), Command: sh(script), TTY: tty})
	check(s.t, err)
	var out bytes.Buffer
	status, err := x.CopyTo(&out, &out)
	check(s.t, err)
	if status.Code != 0 {
		s.t.Fatalf("%q: exit %+v: %s", script, status, out.String())
	}
	return out.String()
}

func (s *sandbox) eventually(what string, ok func() bool) {
	s.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-s.ctx.Done():
			s.t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

func (s *sandbox) ps(c *guest.Client) []guest.Process {
	s.t.Helper()
	all, err := c.Ps(s.ctx)
	check(s.t, err)
	return all
}

func TestPID1ReapsOrphansAndStaysAlive(t *testing.T) {
	s := boot(t)
	c := s.connect()
	s.run(c, "for i in $(seq 30); do setsid sh -c 'sleep 0.01 & exit 0' & done; wait", false)
	s.eventually("orphans are reaped", func() bool {
		all := s.ps(c)
		return len(all) == 1 && all[0].PID == 1
	})
	for sig := 1; sig <= 31; sig++ {
		if sig == int(syscall.SIGKILL) || sig == int(syscall.SIGSTOP) {
			continue
		}
		s.run(c, fmt.Sprintf("kill -%d 1", sig), false)
	}
	s.run(c, "kill -9 1; kill -19 1; true", false)
	if _, err := c.Ping(s.ctx); err != nil {
		t.Fatal(err)
	}
	// A program inherits neither descriptors nor signals that the guest ignores. What the tests were started with stays.
	fds := s.run(c, "ls /proc/self/fd | tr '\\n' ' '", false)
	if fds != "0 1 2 3 " { // 3 is ls reading the folder
		t.Errorf("descriptors of a program: %q", fds)
	}
	status, err := os.ReadFile("/proc/self/status")
	check(t, err)
	inherited := ignoredSignals(t, string(status))
	if ignored := ignoredSignals(t, s.run(c, "cat /proc/self/status", false)); ignored&^inherited != 0 {
		t.Errorf("ignored signals of a program: %x, of this test: %x", ignored, inherited)
	}
	if env := s.run(c, "env", false); strings.Contains(env, magicEnv) || !strings.Contains(env, ":/.brood/bin\n") {
		t.Errorf("environment of a program: %q", env)
	}
}

// ignoredSignals is the mask in a process's status file: bit n-1 is signal n.
func ignoredSignals(t *testing.T, status string) uint64 {
	t.Helper()
	_, rest, found := strings.Cut(status, "SigIgn:")
	if !found {
		t.Fatalf("no ignored signals in %q", status)
	}
	mask, err := strconv.ParseUint(strings.Fields(rest)[0], 16, 64)
	check(t, err)
	return mask
}

func TestPID1LivesThroughACaptureAndAFork(t *testing.T) {
	s := boot(t)
	c := s.connect()
	_, err := c.Start(s.ctx, guest.StartArgs{Command: sh("echo up; trap 'echo down; exit 3' TERM; while :; do i=$((i+1)); echo $i > /run/count; done")})
	check(t, err)
	s.eventually("main counts", func() bool { return strings.TrimSpace(s.run(c, "cat /run/count || true", false)) != "" })
	tty, err := c.Exec(s.ctx, guest.ExecArgs{ID: "tty", TTY: true, Cols: 80, Rows: 24, Command: sh(
		"tty; while :; do j=$((j+1)); echo $j > /run/tty; sleep 0.001; done")})
	check(t, err)
	if out, err := tty.Next(); err != nil || !strings.HasPrefix(string(out.Data), "/dev/pts/") {
		t.Fatalf("%q, %v", out.Data, err)
	}
	s.run(c, "setsid sh -c 'while :; do k=$((k+1)); echo $k > /run/daemon; sleep 0.001; done' >/dev/null 2>&1 &", false)

	r, err := c.Freeze(s.ctx, guest.FreezeArgs{Capture: true})
	check(t, err)
	if r.Stopped < 3 {
		t.Fatalf("%+v", r)
	}
	for _, p := range s.ps(c) {
		if p.PID != 1 && p.State != "T" && p.State != "D" && p.State != "Z" {
			t.Errorf("frozen process %+v", p)
		}
	}
	// The daemon is killed here; the next one is a fork's, or adopts.
	check(t, c.Close())
	c = s.connect()
	if !c.Hello().Frozen || !c.Hello().Started || c.Hello().MainPID == 0 {
		t.Fatalf("%+v", c.Hello())
	}
	id, err := c.Identity(s.ctx, guest.IdentityArgs{Name: "f-1", Hostname: "f-1", Index: 1, Batch: "b", UUID: "u-1", Token: "t"})
	check(t, err)
	for _, n := range id.Renewed {
		if n.Error != "" {
			t.Errorf("%s: %s", n.What, n.Error)
		}
	}
	check(t, c.Thaw(s.ctx))
	seen := s.run(c, "uname -n; cat /etc/hosts /etc/machine-id; cat /run/brood/fork.json", false)
	for _, want := range []string{"f-1\n", "127.0.1.1\tf-1\n", `"uuid":"u-1"`} {
		if !strings.Contains(seen, want) {
			t.Errorf("inside there is no %q: %s", want, seen)
		}
	}
	if strings.Contains(seen, strings.Repeat("0", 32)) {
		t.Errorf("the machine id is the old one: %s", seen)
	}
	for _, name := range []string{"count", "tty", "daemon"} {
		before := s.run(c, "cat /run/"+name, false)
		s.eventually(name+" goes on", func() bool { return s.run(c, "cat /run/"+name, false) != before })
	}
	exit, err := c.Stop(s.ctx, limit)
	check(t, err)
	if exit == nil || exit.Code != 3 {
		t.Errorf("main ended with %+v", exit)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("PID 1 ended with %v", err)
	}
	log, err := logs.Open(s.logs)
	check(t, err)
	defer log.Close()
	var text strings.Builder
	for {
		e, err := log.Next()
		if err != nil {
			break
		}
		text.Write(e.Data)
	}
	if got := text.String(); !strings.HasPrefix(got, "up\n") || !strings.HasSuffix(got, "down\n") {
		t.Errorf("the log has %q", got)
	}
}

func TestPID1CopiesAndTerminals(t *testing.T) {
	s := boot(t)
	c := s.connect()
	src := filepath.Join(s.dir, "src")
	check(t, os.MkdirAll(src+"/d", 0o755))
	check(t, os.WriteFile(src+"/d/f", bytes.Repeat([]byte("abc"), 100_000), 0o640))
	_, err := c.CopyIn(s.ctx, src, "/run/in")
	check(t, err)
	_, err = c.CopyOut(s.ctx, "/run/in", s.dir+"/out")
	check(t, err)
	if text, err := exec.Command("diff", "-r", src, s.dir+"/out").CombinedOutput(); err != nil {
		t.Fatalf("%s", text)
	}
	if out := s.run(c, "stat -c %a /run/in/d/f; ps -o tty= -p $$; stty size < /dev/tty", true); !strings.HasPrefix(out, "640\r\npts/") {
		t.Errorf("a terminal's program says %q", out)
	}
	_, err = c.Exec(s.ctx, guest.ExecArgs{ID: "none", Command: guest.Command{Argv: []string{"nothing-of-that-name"}}})
	if !errs.Is(err, errs.NotFound) || errs.MetaOf(err)[guest.ExitKey] != "127" {
		t.Errorf("%v %v", err, errs.MetaOf(err))
	}
	check(t, os.WriteFile(src+"/script", []byte("not a program"), 0o755))
	_, err = c.CopyIn(s.ctx, src+"/script", "/run/script")
	check(t, err)
	_, err = c.Exec(s.ctx, guest.ExecArgs{ID: "none", Command: guest.Command{Argv: []string{"/run/script"}}})
	if !errs.Is(err, errs.PermissionDenied) || errs.MetaOf(err)[guest.ExitKey] != "126" {
		t.Errorf("%v %v", err, errs.MetaOf(err))
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"what"}, {"init", "x"}} {
		if err := run(args); err == nil || !strings.Contains(err.Error(), "usage") {
			t.Errorf("%v: %v", args, err)
		}
	}
	t.Setenv(magicEnv, "zz")
	if err := run([]string{"init"}); err == nil || !strings.Contains(err.Error(), magicEnv) {
		t.Errorf("bad magic: %v", err)
	}
}
