package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"brood/api/brood/v1/broodv1connect"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/api/cua/daemon/v1/daemonv1connect"
	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/home"
	"brood/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a daemon of the tests: the real protocol over a real socket, with
// books in memory instead of sandboxes. Its state outlives stop and start.
type server struct {
	t      *testing.T
	socket string
	mux    *http.ServeMux

	group *life.Group
	http  *http.Server

	mu    sync.Mutex // guards conns, calls
	conns map[net.Conn]bool
	calls map[string]int

	batches *batchBook
	execs   *execBook
	files   *fileBook
}

// serve starts a daemon on a socket in a folder of its own.
func serve(t *testing.T) *server {
	t.Helper()
	return serveAt(t, filepath.Join(t.TempDir(), "brood.sock"))
}

func serveAt(t *testing.T, socket string) *server {
	t.Helper()
	s := &server{t: t, socket: socket, mux: http.NewServeMux(), conns: map[net.Conn]bool{}, calls: map[string]int{}}
	s.batches, s.execs, s.files = newBatchBook(s), newExecBook(s), newFileBook(t)
	opts := []connect.HandlerOption{connect.WithInterceptors(counter{s}), connect.WithReadMaxBytes(wire.MaxMessageBytes), connect.WithSendMaxBytes(wire.MaxMessageBytes)}
	s.mux.Handle(daemonv1connect.NewForkBatchServiceHandler(s.batches, opts...))
	s.mux.Handle(broodv1connect.NewBatchServiceHandler(s.batches, opts...))
	s.mux.Handle(broodv1connect.NewExecServiceHandler(s.execs, opts...))
	s.mux.Handle(broodv1connect.NewFileServiceHandler(s.files, opts...))
	s.mux.Handle(daemonv1connect.NewDaemonServiceHandler(identity{}, opts...))
	s.mux.Handle(daemonv1connect.NewSandboxServiceHandler(daemonv1connect.UnimplementedSandboxServiceHandler{}, opts...))
	s.mux.Handle(daemonv1connect.NewRuntimeServiceHandler(daemonv1connect.UnimplementedRuntimeServiceHandler{}, opts...))
	s.mux.Handle(broodv1connect.NewSandboxServiceHandler(creation{}, opts...))
	s.mux.Handle(broodv1connect.NewCheckpointServiceHandler(broodv1connect.UnimplementedCheckpointServiceHandler{}, opts...))
	s.mux.Handle(broodv1connect.NewImageServiceHandler(imports{}, opts...))
	s.mux.Handle(broodv1connect.NewLogServiceHandler(logLines{}, opts...))
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *server) start() {
	s.t.Helper()
	l, err := home.ListenSocket(s.socket)
	if err != nil {
		s.t.Fatal(err)
	}
	s.serveOn(l, s.mux)
}

func (s *server) serveOn(l net.Listener, h http.Handler) {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	s.http = &http.Server{Handler: h, Protocols: p, ReadHeaderTimeout: time.Minute, ConnState: s.track}
	s.group = life.NewGroup(context.Background())
	serving := s.http
	s.group.Go("serve", func(context.Context) error {
		if err := serving.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}

func (s *server) stop() {
	if s.http == nil {
		return
	}
	_ = s.http.Close()
	s.drop()
	if err := s.group.Wait(); err != nil {
		s.t.Error(err)
	}
	s.http = nil
}

func (s *server) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, c)
	default:
		s.conns[c] = true
	}
}

// drop cuts every connection, as a crash does.
func (s *server) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

// count returns how often a procedure was called.
func (s *server) count(procedure string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[procedure]
}

// dial connects with little patience, so that a test of a lost daemon ends.
func (s *server) dial(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Options{SocketPath: s.socket, Patience: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// counter counts calls, and says what wire.Error says.
type counter struct{ s *server }

func (c counter) note(p string) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.calls[p]++
}

func (c counter) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		c.note(r.Spec().Procedure)
		res, err := next(ctx, r)
		return res, wire.Error(err)
	}
}

func (c counter) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (c counter) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		c.note(conn.Spec().Procedure)
		return wire.Error(next(ctx, conn))
	}
}

type identity struct {
	daemonv1connect.UnimplementedDaemonServiceHandler
}

func (identity) GetInfo(context.Context, *connect.Request[daemonv1.GetInfoRequest]) (*connect.Response[daemonv1.GetInfoResponse], error) {
	return connect.NewResponse(&daemonv1.GetInfoResponse{Version: "1.2.3"}), nil
}

// guard is a handler behind a token.
type guard struct {
	token string
	next  http.Handler
}

func (g guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+g.token {
		ew := connect.NewErrorWriter()
		_ = ew.Write(w, r, wire.Error(errs.New(errs.Unauthenticated, "the token is not this daemon's")))
		return
	}
	g.next.ServeHTTP(w, r)
}

// want checks an error's code and what its text says.
func want(t *testing.T, err error, code errs.Code, says string) {
	t.Helper()
	var e *client.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v (%T) is no *client.Error", err, err)
	}
	if errs.CodeOf(err) != code || !strings.Contains(err.Error(), says) {
		t.Fatalf("%s: %q; want %s: …%s…", errs.CodeOf(err), err, code, says)
	}
	if e.Reason == "" || strings.HasPrefix(e.Reason, "DAEMON") || e.Message != err.Error() {
		t.Fatalf("error %+v", e)
	}
}
