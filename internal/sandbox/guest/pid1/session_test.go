//go:build linux

package pid1_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest"
	"brood/internal/sandbox/guest/logs"
)

func TestStartExecAndLogs(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	if _, err := c.Ping(b.ctx); err != nil {
		t.Fatal(err)
	}
	pid, err := c.Start(b.ctx, guest.StartArgs{Command: sh("echo out; echo err >&2; exit 3")})
	check(t, err)
	if pid <= 0 {
		t.Fatalf("pid %d", pid)
	}
	status, err := c.WaitMain(b.ctx)
	check(t, err)
	if status.Code != 3 || status.Signal != "" {
		t.Fatalf("main ended with %+v", status)
	}
	got := map[logs.Stream]string{}
	for _, e := range readLog(t, b.logs) {
		got[e.Stream] += string(e.Data)
	}
	if got[logs.Stdout] != "out\n" || got[logs.Stderr] != "err\n" {
		t.Fatalf("log has %q", got)
	}
	if _, err := c.Start(b.ctx, guest.StartArgs{Command: sh("sleep 1000")}); err != nil {
		t.Fatalf("the main command again after its end: %v", err)
	}
	if _, err := c.Start(b.ctx, guest.StartArgs{Command: sh("true")}); !errs.Is(err, errs.AlreadyExists) {
		t.Fatalf("a second main command: %v", err)
	}
	out, errOut, status := output(b.ctx, t, c, guest.ExecArgs{ID: "a", Command: sh("echo hi; echo no >&2; kill -9 $$")})
	if out != "hi\n" || errOut != "no\n" || status.Signal != "SIGKILL" || status.Code != 137 {
		t.Fatalf("exec: %q %q %+v", out, errOut, status)
	}
}

func readLog(t *testing.T, paths [2]string) []logs.Entry {
	t.Helper()
	r, err := logs.Open(paths)
	check(t, err)
	defer r.Close()
	var all []logs.Entry
	for {
		e, err := r.Next()
		if err != nil {
			return all
		}
		e.Data = bytes.Clone(e.Data)
		all = append(all, e)
	}
}

func TestStartFailuresHaveShellCodes(t *testing.T) {
	b := newBox(t)
	b.write("etc/passwd", fmt.Sprintf("#\nbad:x\nme:x:%d:%d::/home/me:/bin/sh\n", os.Getuid(), os.Getgid()), 0o644)
	c := b.connect()
	for _, tt := range []struct {
		argv string
		code errs.Code
		exit string
	}{
		{"no-such-program-here", errs.NotFound, "127"},
		{"/no/such/file", errs.NotFound, "127"},
		{"/etc/passwd", errs.PermissionDenied, "126"},
		{"/usr", errs.PermissionDenied, "126"},
		{strings.Repeat("no-such/", 400), errs.NotFound, "127"},
		{"/" + strings.Repeat("n", 3000), errs.PermissionDenied, "126"},
	} {
		_, err := c.Exec(b.ctx, guest.ExecArgs{ID: "x", Command: guest.Command{Argv: []string{tt.argv}}})
		if errs.CodeOf(err) != tt.code || errs.MetaOf(err)[guest.ExitKey] != tt.exit || len(err.Error()) > 400 {
			t.Errorf("%.200s: %v (%v, %v)", tt.argv, err, errs.CodeOf(err), errs.MetaOf(err))
		}
	}
	// None of them took the id.
	if out, _, _ := output(b.ctx, t, c, guest.ExecArgs{ID: "x", Command: sh("echo $USER $HOME")}); out != "me /home/me\n" {
		t.Errorf("the user is %q", out)
	}
}
