//go:build linux

package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	v1 "brood/api/cua/daemon/v1"
	"brood/api/cua/daemon/v1/daemonv1connect"
	"brood/internal/base/life"
)

// patience ends a test that hangs; nothing measures against it.
const patience = 5 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program returns the absolute path of a program that make makes.
func program(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(abs); err != nil || !info.Mode().IsRegular() {
		t.Fatalf("%s is missing: run make test, which makes it", abs)
	}
	return abs
}

// runNode runs a script and returns what it printed, with its error.
func runNode(t *testing.T, stdin io.Reader, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t, "../../.cache/node/bin/node"), args...)
	cmd.Env = append(os.Environ(), "no_proxy=*")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// daemon is a running brood with a home of its own.
type daemon struct {
	bin, home string
	log       *os.File
}

// brood runs a command against the daemon and returns what it printed.
func (d daemon) brood(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.bin, args...)
	cmd.Env = d.env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("brood %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (d daemon) env() []string { return append(os.Environ(), "BROOD_HOME="+d.home) }

// startDaemon starts brood daemon and waits until its socket answers. The
// test's end removes every sandbox and stops it.
func startDaemon(t *testing.T) daemon {
	t.Helper()
	bin := os.Getenv("BROOD_BIN")
	if bin == "" {
		bin = "../../bin/brood"
	}
	d := daemon{bin: program(t, bin)}
	// Not t.TempDir: the path of a socket is short.
	home, err := os.MkdirTemp("", "brood")
	if err != nil {
		t.Fatal(err)
	}
	d.home = home
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Errorf("remove the home: %v", err)
		}
	})
	if d.log, err = os.Create(filepath.Join(t.TempDir(), "daemon.log")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(d.bin, "daemon")
	cmd.Env, cmd.Stdout, cmd.Stderr = d.env(), d.log, d.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	group := life.NewGroup(context.Background())
	ended := make(chan error, 1)
	group.Go("daemon", func(context.Context) error { ended <- cmd.Wait(); return nil })
	t.Cleanup(func() { d.stop(t, cmd.Process, group) })
	d.waitReady(t, ended)
	return d
}

func (d daemon) waitReady(t *testing.T, ended <-chan error) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		if conn, err := net.Dial("unix", d.socket()); err == nil {
			conn.Close()
			return
		}
		select {
		case err := <-ended:
			t.Fatalf("the daemon ended before it answered: %v\n%s", err, d.said())
		case <-limit.C:
			t.Fatalf("the daemon does not answer\n%s", d.said())
		case <-tick.C:
		}
	}
}

func (d daemon) socket() string { return filepath.Join(d.home, "brood.sock") }

func (d daemon) said() string {
	raw, err := os.ReadFile(d.log.Name())
	return string(raw) + errText(err)
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return "\n" + err.Error()
}

// stop removes every sandbox, so that nothing outlives the test, and ends the
// daemon.
func (d daemon) stop(t *testing.T, process *os.Process, group *life.Group) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.socket())
	}}
	defer transport.CloseIdleConnections()
	boxes := daemonv1connect.NewSandboxServiceClient(&http.Client{Transport: transport}, "http://localhost")
	if list, err := boxes.ListSandboxes(ctx, connect.NewRequest(&v1.ListSandboxesRequest{})); err != nil {
		t.Errorf("list what is left: %v", err)
	} else {
		for _, box := range list.Msg.Sandboxes {
			if _, err := boxes.DeleteSandbox(ctx, connect.NewRequest(&v1.DeleteSandboxRequest{Name: box.Name})); err != nil {
				t.Errorf("remove %s: %v", box.Name, err)
			}
		}
	}
	if err := process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("stop the daemon: %v", err)
	}
	// One that does not end is ended, so that the test does not hang.
	hard := time.AfterFunc(time.Minute, func() { _ = process.Kill() })
	defer hard.Stop()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	d.log.Close()
	if t.Failed() {
		t.Logf("the daemon said:\n%s", d.said())
	}
}

// TestBatch drives whole batches from Node, on both of the daemon's ways in.
func TestBatch(t *testing.T) {
	d := startDaemon(t)
	d.brood(t, "sb", "create", "host", "--name", "src", "--", "sh", "-c", "while :; do sleep 1; done")
	d.brood(t, "sb", "checkpoint", "src", "base")

	raw, err := os.ReadFile(filepath.Join(d.home, "daemon.json"))
	if err != nil {
		t.Fatal(err)
	}
	var where struct {
		URL   string `json:"loopback_url"`
		Token string `json:"token"`
	}
	if err := json.Unmarshal(raw, &where); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, target, token string }{
		{"socket", "unix:" + d.socket(), ""}, {"loopback", where.URL, where.Token},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.target == "" || c.name == "loopback" && c.token == "" {
				t.Fatalf("daemon.json does not say how to reach it: %s", raw)
			}
			stdout, stderr, err := runNode(t, nil, "batch.mjs", c.target, c.token, "base", "3")
			if err != nil {
				t.Fatalf("batch.mjs: %v\n%s\n%s", err, stderr, stdout)
			}
			if n := strings.Count(stdout, `{"item":`); n != 4 {
				t.Errorf("it printed %d items, want 3 and 1:\n%s", n, stdout)
			}
		})
	}
}
