//go:build linux

package pid1_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest"
	"brood/internal/sandbox/guest/logs"
)

func (b *box) write(name, content string, mode os.FileMode) {
	b.t.Helper()
	at := filepath.Join(b.root, name)
	check(b.t, os.MkdirAll(filepath.Dir(at), 0o755))
	check(b.t, os.WriteFile(at, []byte(content), mode))
	check(b.t, os.Chmod(at, mode))
}

func (b *box) read(name string) string {
	b.t.Helper()
	content, err := os.ReadFile(filepath.Join(b.root, name))
	check(b.t, err)
	return string(content)
}

func forkIdentity() guest.IdentityArgs {
	return guest.IdentityArgs{
		Name: "py-3", Hostname: "py-3", Index: 3, Batch: "b-1", UUID: "0b9d", Token: "secret",
		Inputs: json.RawMessage(`{"seed":7}`), Env: []string{"FORK=three"},
	}
}

func TestIdentityMakesAForkItself(t *testing.T) {
	b := newBox(t)
	b.write("etc/machine-id", strings.Repeat("0", 32)+"\n", 0o444)
	b.write("etc/hostname", "src\n", 0o644)
	b.write("etc/hosts", "127.0.0.1\tlocalhost\n127.0.1.1 src src.local # mine\n", 0o644)
	b.write("etc/brood/on-fork.d/20-late", "#!/bin/sh\necho late $BROOD_INDEX >> "+b.root+"/hooks\n", 0o755)
	b.write("etc/brood/on-fork.d/10-early", "#!/bin/sh\necho early $FORK >> "+b.root+"/hooks\n", 0o755)
	b.write("etc/brood/on-fork.d/30-off", "#!/bin/sh\necho off >> "+b.root+"/hooks\n", 0o644)
	c := b.connect()
	if _, err := c.IdentityInfo(b.ctx); !errs.Is(err, errs.NotFound) {
		t.Fatalf("identity before there is one: %v", err)
	}
	fifo := filepath.Join(b.root, "fifo")
	check(t, syscall.Mkfifo(fifo, 0o600))
	_, err := c.Start(b.ctx, guest.StartArgs{Command: sh("echo source; read x < " + fifo + "; echo $x")})
	check(t, err)
	b.eventually("the source has written", func() bool { return len(readLog(t, b.logs)) == 1 })

	_, err = c.Freeze(b.ctx, guest.FreezeArgs{Capture: true})
	check(t, err)
	// A fork's descriptors 4 and 5 are new files, and so are ours now.
	for _, path := range b.logs {
		check(t, os.Truncate(path, 0))
	}
	r, err := c.Identity(b.ctx, forkIdentity())
	check(t, err)
	if r.Hostname != "py-3" || r.UUID != "0b9d" || r.Index != 3 {
		t.Fatalf("identity %+v", r)
	}
	var f map[string]any
	check(t, json.Unmarshal([]byte(b.read("run/brood/fork.json")), &f))
	if f["name"] != "py-3" || f["index"] != 3.0 || f["batch"] != "b-1" || f["uuid"] != "0b9d" || f["inputs"].(map[string]any)["seed"] != 7.0 {
		t.Fatalf("fork.json %v", f)
	}
	for name, mode := range map[string]os.FileMode{"run/brood/fork.json": 0o644, "run/brood/token": 0o600, "etc/machine-id": 0o444} {
		info, err := os.Stat(filepath.Join(b.root, name))
		check(t, err)
		if info.Mode() != mode {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
	if id := strings.TrimSpace(b.read("etc/machine-id")); len(id) != 32 || id == strings.Repeat("0", 32) {
		t.Errorf("machine-id %q", id)
	}
	if b.read("etc/hostname") != "py-3\n" || b.read("run/brood/token") != "secret" {
		t.Errorf("hostname %q, token %q", b.read("etc/hostname"), b.read("run/brood/token"))
	}
	if hosts := b.read("etc/hosts"); hosts != "127.0.0.1\tlocalhost\n127.0.1.1\tpy-3\tsrc.local\t# mine\n" {
		t.Errorf("hosts %q", hosts)
	}
	if hooks := b.read("hooks"); hooks != "early three\nlate 3\n" {
		t.Errorf("hooks %q", hooks)
	}
	again, err := c.IdentityInfo(b.ctx)
	check(t, err)
	if len(again.Renewed) < 6 || again.UUID != "0b9d" {
		t.Errorf("info %+v", again)
	}
	check(t, c.Thaw(b.ctx))
	out, _, _ := output(b.ctx, t, c, guest.ExecArgs{ID: "env", Command: sh("echo $FORK")})
	if out != "three\n" {
		t.Errorf("environment of a new program: %q", out)
	}
	if all := readLog(t, b.logs); len(all) != 0 {
		t.Errorf("the fork's log begins with %q", all[0].Data)
	}
	check(t, os.WriteFile(fifo, []byte("forked\n"), 0))
	_, err = c.WaitMain(b.ctx)
	check(t, err)
	if all := readLog(t, b.logs); len(all) != 1 || string(all[0].Data) != "forked\n" {
		t.Errorf("the fork's log has %+v", all)
	}
}

func TestForkLosesTheSourcesExecsButTheirProgramsGoOn(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	marks := filepath.Join(b.root, "marks")
	x, err := c.Exec(b.ctx, guest.ExecArgs{ID: "noisy", Stdin: true, Command: sh(
		"(while :; do head -c 100000 /dev/zero; echo x >> " + marks + "; done) & cat; echo eof > " + b.root + "/eof; wait")})
	check(t, err)
	_, err = c.Exec(b.ctx, guest.ExecArgs{ID: "term", TTY: true, Command: sh("while :; do i=$((i+1)); echo $i | tee " + b.root + "/term; sleep 0.001; done")})
	check(t, err)
	list, err := c.ListExecs(b.ctx)
	check(t, err)
	_, err = c.Freeze(b.ctx, guest.FreezeArgs{Capture: true})
	check(t, err)
	_, err = c.Identity(b.ctx, forkIdentity())
	check(t, err)
	check(t, c.Thaw(b.ctx))

	if left, err := c.ListExecs(b.ctx); err != nil || len(left) != 0 {
		t.Fatalf("execs in the fork: %+v, %v", left, err)
	}
	size := func() int64 {
		info, err := os.Stat(marks)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	for range 2 {
		start, term := size(), counter(b)
		// Far more than the buffers hold: nothing waits for a reader.
		b.eventually("the noisy program goes on", func() bool { return size() > start+60 })
		b.eventually("the terminal's program goes on", func() bool { return counter(b) > term })
	}
	b.eventually("its input has ended", func() bool { _, err := os.Stat(b.root + "/eof"); return err == nil })
	for _, i := range list {
		if s := b.states(c)[i.PID]; s == "" {
			t.Errorf("%s is gone", i.ID)
		}
	}
	for err == nil {
		_, err = x.Next()
	}
	if !errs.Is(err, errs.Stale) {
		t.Errorf("an attachment from before: %v", err)
	}
	// Its ids are free again.
	if out, _, _ := output(b.ctx, t, c, guest.ExecArgs{ID: "noisy", Command: sh("echo new")}); out != "new\n" {
		t.Errorf("a new exec of that id says %q", out)
	}
}

func counter(b *box) int {
	content, err := os.ReadFile(filepath.Join(b.root, "term"))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(content)))
	return n
}

func TestIdentityRefusesAndHooksFail(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	for _, spoil := range []func(*guest.IdentityArgs){
		func(a *guest.IdentityArgs) { a.Hostname = "" },
		func(a *guest.IdentityArgs) { a.Hostname = "a b" },
		func(a *guest.IdentityArgs) { a.UUID = "" },
		func(a *guest.IdentityArgs) { a.Entropy = []byte("short") },
		func(a *guest.IdentityArgs) { a.MachineID = strings.Repeat("G", 32) },
	} {
		a := forkIdentity()
		spoil(&a)
		if _, err := c.Identity(b.ctx, a); !errs.Is(err, errs.InvalidArgument) {
			t.Errorf("%+v: %v", a, err)
		}
	}
	b.write("etc/brood/on-fork.d/fails", "#!/bin/sh\necho the reason >&2\nexit 4\n", 0o755)
	_, err := c.Identity(b.ctx, forkIdentity())
	if !errs.Is(err, errs.FailedPrecondition) || !strings.Contains(err.Error(), "the reason") || !strings.Contains(err.Error(), "exit code 4") {
		t.Errorf("failing hook: %v", err)
	}
	b.write("etc/brood/on-fork.d/fails", "#!/bin/sh\nsleep 1000 & wait\n", 0o755)
	a := forkIdentity()
	a.HookMillis = 50
	_, err = c.Identity(b.ctx, a)
	if !errs.Is(err, errs.FailedPrecondition) || !strings.Contains(err.Error(), "too long") {
		t.Errorf("slow hook: %v", err)
	}
	b.eventually("the slow hook is gone", func() bool { return len(b.states(c)) == 0 })
}

func TestLogKeepsItsBoundAndItsEnd(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	_, err := c.Start(b.ctx, guest.StartArgs{Command: sh("seq 1 200000"), LogLimit: logs.MinLimit})
	check(t, err)
	_, err = c.WaitMain(b.ctx)
	check(t, err)
	for _, path := range b.logs {
		info, err := os.Stat(path)
		check(t, err)
		if info.Size() > logs.MinLimit {
			t.Errorf("a segment has %d bytes", info.Size())
		}
	}
	var text strings.Builder
	for _, e := range readLog(t, b.logs) {
		text.Write(e.Data)
	}
	if !strings.HasSuffix(text.String(), "\n199999\n200000\n") || text.Len() < logs.MinLimit/2 {
		t.Errorf("log of %d bytes ends in %q", text.Len(), text.String()[max(0, text.Len()-20):])
	}
}
