// Package live runs real daemons for tests: each in a process of its own,
// which is the test's own program started again, so that it can be killed in
// mid-work and so that the race detector sees it.
//
// A test package calls Main from its TestMain. Everything a test makes lies
// in one temporary home and is gone when the test ends; what is not is a
// failure. Values are for one test at a time.
package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"brood/client"
	"brood/internal/base/life"
	"brood/internal/config"
	"brood/internal/edge/daemon"
	"brood/internal/edge/full"
	"brood/internal/home"
	"brood/internal/sandbox"
)

const (
	homeEnv = "BROOD_TEST_DAEMON"
	cliEnv  = "BROOD_TEST_CLI"
)

// Options change a daemon.
type Options struct {
	// Driver replaces gVisor in the daemon's process; by name, since that is
	// another process: see Drivers.
	Driver string
	// Env is added to the daemon's environment.
	Env []string
}

// Drivers are what Options.Driver can name. Set it before Main.
var Drivers = map[string]func(*home.Home) (sandbox.Driver, error){}

// Main is what TestMain calls: it runs the tests, or the daemon, or the
// command line.
func Main(m *testing.M) {
	if os.Getenv(cliEnv) != "" {
		os.Exit(full.Main(os.Args[1:], nil))
	}
	dir := os.Getenv(homeEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	settings, err := config.Load(dir, os.Environ())
	if err == nil {
		err = daemon.Run(ctx, daemon.Params{
			Home: dir, Version: "test", Settings: settings, Log: os.Stderr, Driver: Drivers[os.Getenv("BROOD_TEST_DRIVER")],
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "daemon:", err)
		os.Exit(1)
	}
}

// Daemon is a daemon that a test started.
type Daemon struct {
	Home   string
	Client *client.Client

	dir  string // of all that is the test's: the home, and the log beside it
	t    testing.TB
	opts Options
	cmd  *exec.Cmd
	log  string
	done chan error
}

// Start starts a daemon in a fresh home. When the test ends every sandbox is
// removed, the daemon is stopped, and whatever process or mount is left of
// them fails the test.
func Start(t testing.TB, o Options) *Daemon {
	t.Helper()
	// Not t.TempDir: the name of a test can be long, and the census looks for
	// the path of the home.
	dir, err := os.MkdirTemp("", "brood-test-")
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{Home: filepath.Join(dir, "h"), dir: dir, t: t, opts: o, log: filepath.Join(dir, "daemon.log")}
	t.Cleanup(d.end)
	d.Run()
	return d
}

// Run starts the daemon, again after Kill or Stop, and waits until it answers.
func (d *Daemon) Run() {
	d.t.Helper()
	log, err := os.OpenFile(d.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	d.cmd = exec.Command(os.Args[0])
	d.cmd.Env = append(os.Environ(), homeEnv+"="+d.Home, "BROOD_TEST_DRIVER="+d.opts.Driver, "BROOD_MIN_FREE=64M", "BROOD_LOG_LEVEL=debug")
	d.cmd.Env = append(d.cmd.Env, d.opts.Env...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	cmd := d.cmd
	d.done = make(chan error, 1)
	done := d.done
	reap(func() { done <- cmd.Wait() })
	d.Client = d.dial()
}

func (d *Daemon) dial() *client.Client {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := client.Dial(ctx, client.Options{Home: d.Home})
		if err == nil {
			return c
		}
		select {
		case <-tick.C:
		case exit := <-d.done:
			d.done <- exit
			d.t.Fatalf("the daemon ended: %v\n%s", exit, d.Tail())
		case <-ctx.Done():
			d.t.Fatalf("the daemon does not answer: %v\n%s", err, d.Tail())
		}
	}
}

// Kill ends the daemon as a crash would.
func (d *Daemon) Kill() {
	d.t.Helper()
	d.Client.Close()
	if err := d.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		d.t.Fatal(err)
	}
	<-d.done //nolint:errcheck // how a killed daemon ended is known
}

// Stop ends the daemon as a user would.
func (d *Daemon) Stop() {
	d.t.Helper()
	d.Client.Close()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		d.t.Fatal(err)
	}
	if err := <-d.done; err != nil {
		d.t.Errorf("daemon: %v\n%s", err, d.Tail())
	}
}

// PID is the daemon's process.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Tail is the end of the daemon's log.
func (d *Daemon) Tail() string {
	b, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-8000):])
}

// end removes everything and looks whether that was so.
func (d *Daemon) end() {
	if d.t.Failed() {
		d.t.Logf("daemon's log:\n%s", d.Tail())
	}
	if !alive(d.cmd.Process) {
		d.Run()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	list, err := d.Client.ListSandboxes(ctx)
	if err != nil {
		d.t.Errorf("list what is to be removed: %v", err)
	}
	for _, sb := range list.GetSandboxes() {
		if err := d.Client.DeleteSandbox(ctx, sb.GetName()); err != nil {
			d.t.Errorf("remove %s: %v", sb.GetName(), err)
		}
	}
	d.Stop()
	for _, left := range Census(d.Home) {
		d.t.Errorf("left behind: %s", left)
	}
	if err := os.RemoveAll(d.dir); err != nil {
		d.t.Error(err)
	}
}

func alive(p *os.Process) bool { return p.Signal(syscall.Signal(0)) == nil }

// Census lists the processes and mounts of this machine that have to do with
// a home.
func Census(dir string) []string {
	var all []string
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return []string{err.Error()}
	}
	for _, p := range procs {
		if filepath.Base(p) == fmt.Sprint(os.Getpid()) {
			continue
		}
		args, _ := os.ReadFile(p + "/cmdline")
		exe, _ := os.Readlink(p + "/exe")
		if text := string(bytes.ReplaceAll(args, []byte{0}, []byte(" "))); strings.Contains(text, dir) || strings.HasPrefix(exe, dir) {
			all = append(all, fmt.Sprintf("process %s: %s (%s)", filepath.Base(p), text, exe))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return append(all, err.Error())
	}
	for line := range bytes.Lines(mounts) {
		if bytes.Contains(line, []byte(dir)) {
			all = append(all, "mount "+string(line))
		}
	}
	return all
}

// Exec runs a command in a sandbox and returns what it wrote and its code.
func (d *Daemon) Exec(name string, argv ...string) (string, int) {
	d.t.Helper()
	var out, complaint bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	exit, err := d.Client.Exec(ctx, name, client.ExecOptions{Argv: argv}, client.Streams{Out: &out, Err: io.MultiWriter(&complaint, &out)})
	if err != nil {
		d.t.Fatalf("exec %q in %s: %v", argv, name, err)
	}
	return out.String() + exit.GetError(), int(exit.GetCode())
}

// Output is Exec of a command that must succeed, its output trimmed.
func (d *Daemon) Output(name string, argv ...string) string {
	d.t.Helper()
	out, code := d.Exec(name, argv...)
	if code != 0 {
		d.t.Fatalf("exec %q in %s ended with %d: %s", argv, name, code, out)
	}
	return strings.TrimSpace(out)
}

// Brood runs the command line on this daemon and returns its standard output.
// It must end with code; what it complained of is shown when it does not.
func (d *Daemon) Brood(code int, args ...string) string {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), cliEnv+"=1", "BROOD_HOME="+d.Home)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState == nil {
		d.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		d.t.Fatalf("brood %q ended with %d, want %d: %s%s", args, got, code, out, &complaint)
	}
	return string(out)
}

// Eventually waits until ok; it fails the test after a generous time.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	limit := time.NewTimer(60 * time.Second)
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("did not come to be: %s", what)
		}
	}
}

// KillDuring begins work, kills the daemon after a while, and waits for the
// work to end, which it does because its daemon is gone.
func (d *Daemon) KillDuring(after time.Duration, work func(*client.Client)) {
	d.t.Helper()
	g := life.NewGroup(context.Background())
	c := d.Client
	g.Go("work", func(context.Context) error { work(c); return nil })
	wait := time.NewTimer(after)
	defer wait.Stop()
	<-wait.C
	if err := d.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		d.t.Fatal(err)
	}
	<-d.done //nolint:errcheck // how a killed daemon ended is known
	_ = g.Wait()
	c.Close()
}

// Sandboxes lists the sandbox processes of a home's runtime.
func Sandboxes(dir string) []string {
	var all []string
	for _, p := range Census(dir) {
		if strings.Contains(p, "runsc-sandbox") && strings.Contains(p, " boot ") {
			all = append(all, p)
		}
	}
	return all
}

// Upgrade starts a daemon that was stopped as another one, from now on.
func (d *Daemon) Upgrade(o Options) {
	d.t.Helper()
	d.opts = o
	d.Run()
}
