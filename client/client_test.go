package client_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	broodv1 "brood/api/brood/v1"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/wire"
)

func TestDialFindsTheDaemon(t *testing.T) {
	deep := filepath.Join(t.TempDir(), strings.Repeat("long-name/", 12)) // beyond 108 bytes
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	s := serveAt(t, filepath.Join(deep, "brood.sock"))
	elsewhere := t.TempDir()
	d, err := json.Marshal(wire.Discovery{PID: 1, SocketPath: s.socket})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(elsewhere, "daemon.json"), d, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]client.Options{
		"socket":                   {SocketPath: s.socket},
		"home without daemon.json": {Home: deep},
		"home with daemon.json":    {Home: elsewhere},
	} {
		c, err := client.Dial(t.Context(), o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if c.Info().GetVersion() != "1.2.3" {
			t.Errorf("%s: %v", name, c.Info())
		}
		c.Close()
	}
	t.Setenv("BROOD_HOME", deep)
	c, err := client.Dial(t.Context(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestDialByURLNeedsTheToken(t *testing.T) {
	s := serve(t)
	s.stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.serveOn(l, guard{"secret", s.mux})
	url := "http://" + l.Addr().String()
	c, err := client.Dial(t.Context(), client.Options{URL: url + "/", Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b, err := c.ForkMany(t.Context(), "base", 2, nil) // a stream carries it too
	if err != nil {
		t.Fatal(err)
	}
	if r, err := b.Collect(t.Context()); err != nil || len(r.Items) != 2 {
		t.Errorf("%v, %v", r, err)
	}
	_, err = client.Dial(t.Context(), client.Options{URL: url, Token: "guess"})
	want(t, err, errs.Unauthenticated, "token")
}

func TestDialRefuses(t *testing.T) {
	for _, c := range []struct {
		o    client.Options
		code errs.Code
		says string
	}{
		{client.Options{Home: "/a", URL: "http://127.0.0.1:1"}, errs.InvalidArgument, "one of them"},
		{client.Options{SocketPath: "/a", Token: "x"}, errs.InvalidArgument, "goes with a URL"},
		{client.Options{URL: "http://192.0.2.1:80"}, errs.InvalidArgument, "clear"},
		{client.Options{URL: "http://localhost.example:80"}, errs.InvalidArgument, "clear"},
		{client.Options{URL: "127.0.0.1:80"}, errs.InvalidArgument, "address"},
		{client.Options{Home: t.TempDir()}, errs.Unavailable, "brood daemon"},
		{client.Options{URL: "http://127.0.0.1:1", Token: "x"}, errs.Unavailable, "brood daemon"},
	} {
		_, err := client.Dial(t.Context(), c.o)
		want(t, err, c.code, c.says)
	}
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "daemon.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := client.Dial(t.Context(), client.Options{Home: broken})
	want(t, err, errs.DataLoss, "daemon.json")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = client.Dial(ctx, client.Options{Home: t.TempDir()})
	want(t, err, errs.Canceled, "")
}

// TestEveryMethodCallsItsRPC: the server does not implement most services, and
// says so; what counts is which one was asked.
func TestEveryMethodCallsItsRPC(t *testing.T) {
	s := serve(t)
	c := s.dial(t)
	ctx := t.Context()
	for procedure, call := range map[string]func() error{
		"/cua.daemon.v1.SandboxService/ListSandboxes":       func() error { _, err := c.ListSandboxes(ctx); return err },
		"/cua.daemon.v1.SandboxService/GetSandbox":          func() error { _, err := c.GetSandbox(ctx, "x"); return err },
		"/cua.daemon.v1.SandboxService/DeleteSandbox":       func() error { return c.DeleteSandbox(ctx, "x") },
		"/cua.daemon.v1.SandboxService/CancelCreateSandbox": func() error { _, err := c.CancelCreateSandbox(ctx, "x"); return err },
		"/cua.daemon.v1.SandboxService/SuspendSandbox":      func() error { return c.SuspendSandbox(ctx, "x") },
		"/cua.daemon.v1.SandboxService/ResumeSandbox":       func() error { return c.ResumeSandbox(ctx, "x") },
		"/cua.daemon.v1.SandboxService/RestartSandbox":      func() error { return c.RestartSandbox(ctx, "x") },
		"/cua.daemon.v1.SandboxService/KeepAlive":           func() error { return c.KeepAlive(ctx, "x", time.Minute) },
		"/cua.daemon.v1.SandboxService/WaitReady":           func() error { return c.WaitReady(ctx, "x", &daemonv1.ReadinessProbe{Port: 1}) },
		"/cua.daemon.v1.SandboxService/ForwardPort":         func() error { _, err := c.ForwardPort(ctx, "x", 1); return err },
		"/cua.daemon.v1.SandboxService/CloseForward":        func() error { return c.CloseForward(ctx, "x") },
		"/cua.daemon.v1.DaemonService/Shutdown":             func() error { return c.Shutdown(ctx) },
		"/cua.daemon.v1.RuntimeService/Doctor":              func() error { _, err := c.Doctor(ctx); return err },
		"/brood.v1.SandboxService/GetSandboxInfo":           func() error { _, err := c.GetSandboxInfo(ctx, "x"); return err },
		"/brood.v1.SandboxService/GetIdentity":              func() error { _, err := c.GetIdentity(ctx, "x"); return err },
		"/brood.v1.SandboxService/ListProcesses":            func() error { _, err := c.ListProcesses(ctx, "x"); return err },
		"/brood.v1.ExecService/ListExecs":                   func() error { _, err := c.ListExecs(ctx, "x"); return err },
		"/brood.v1.CheckpointService/CreateCheckpoint": func() error {
			_, err := c.CreateCheckpoint(ctx, "x", "y", client.CheckpointOptions{Pin: true})
			return err
		},
		"/brood.v1.CheckpointService/ListCheckpoints":  func() error { _, err := c.ListCheckpoints(ctx, true); return err },
		"/brood.v1.CheckpointService/GetCheckpoint":    func() error { _, err := c.GetCheckpoint(ctx, "x"); return err },
		"/brood.v1.CheckpointService/RenameCheckpoint": func() error { _, err := c.RenameCheckpoint(ctx, "x", "y"); return err },
		"/brood.v1.CheckpointService/DeleteCheckpoint": func() error { _, err := c.DeleteCheckpoint(ctx, "x", true); return err },
		"/brood.v1.CheckpointService/PinCheckpoint":    func() error { _, err := c.PinCheckpoint(ctx, "x"); return err },
		"/brood.v1.CheckpointService/UnpinCheckpoint":  func() error { _, err := c.UnpinCheckpoint(ctx, "x"); return err },
		"/brood.v1.CheckpointService/Fork":             func() error { _, err := c.Fork(ctx, "x", "y"); return err },
		"/brood.v1.ImageService/ListImages":            func() error { _, err := c.ListImages(ctx); return err },
	} {
		want(t, call(), errs.Unsupported, "")
		if n := s.count(procedure); n != 1 {
			t.Errorf("%s was called %d times", procedure, n)
		}
	}
}

func TestCreateSandboxTellsProgress(t *testing.T) {
	c := serve(t).dial(t)
	var phases []string
	progress := func(p *daemonv1.CreateSandboxProgress) { phases = append(phases, p.GetPhase()) }
	create := func(name string) (*broodv1.CreateSandboxResult, error) {
		return c.CreateSandbox(t.Context(), &broodv1.CreateSandboxRequest{Create: &daemonv1.CreateSandboxRequest{Name: name}}, progress)
	}
	r, err := create("a")
	if err != nil || r.GetSandbox().GetName() != "a" || !slices.Equal(phases, []string{"preparing", "booting"}) {
		t.Errorf("%v, %v, %q", r, err, phases)
	}
	_, err = create("broken")
	want(t, err, errs.AlreadyExists, "use another name")
	_, err = create("silent")
	want(t, err, errs.Unavailable, "before its last event")
}

func TestImportImage(t *testing.T) {
	c := serve(t).dial(t)
	var seen uint64
	img, err := c.ImportImage(t.Context(), "/rootfs", "base", func(p *broodv1.ImportImageProgress) { seen += p.GetEntries() })
	if err != nil || img.GetName() != "base" || img.GetOrigin() != "/rootfs" || seen != 1 {
		t.Errorf("%v, %v, %d", img, err, seen)
	}
}

// What messages cannot carry is the caller's fault, in unary calls and streams.
func TestTextsThatAreNone(t *testing.T) {
	c := serve(t).dial(t)
	_, err := c.GetSandbox(t.Context(), "a\xff")
	want(t, err, errs.InvalidArgument, "not UTF-8")
	_, err = c.StartExec(t.Context(), "a", client.ExecOptions{Argv: []string{"\xff"}})
	want(t, err, errs.InvalidArgument, "not UTF-8")
	_, err = c.PutTar(t.Context(), "a", "/\xff", strings.NewReader(""))
	want(t, err, errs.InvalidArgument, "not UTF-8")
}

func TestLogs(t *testing.T) {
	c, err := client.Dial(t.Context(), client.Options{SocketPath: serve(t).socket, Patience: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	three := uint32(3)
	var text string
	for l, err := range c.Logs(t.Context(), "a", client.LogOptions{Tail: &three, Stream: broodv1.LogStream_LOG_STREAM_STDERR}) {
		if err != nil || l.GetStream() != broodv1.LogStream_LOG_STREAM_STDERR {
			t.Fatal(l, err)
		}
		text += string(l.GetData())
	}
	if text != "\nx\nxx\n" {
		t.Errorf("%q", text)
	}
	for range c.Logs(t.Context(), "a", client.LogOptions{Tail: &three}) {
		break
	}
	var last error
	for _, err := range c.Logs(t.Context(), "a", client.LogOptions{Follow: true}) {
		last = err
	}
	want(t, last, errs.Unavailable, "the sandbox ended")
}

var _ http.Handler = guard{}
