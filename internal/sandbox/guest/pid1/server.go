//go:build linux

package pid1

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/sandbox/guest/logs"
	"brood/internal/sandbox/guest/proto"
)

const (
	// maxRequests bounds the requests served at once; more wait. Each exec
	// that somebody looks at takes one or two.
	maxRequests = 1024
	// maxExecs bounds the execs that are known, ended ones included.
	maxExecs = 256
)

// Config is what a server is made of.
type Config struct {
	Channel io.ReadWriteCloser // the byte stream to the host; Serve closes it
	Magic   []byte             // proto.MagicSize bytes, this sandbox's own
	Logs    [2]logs.File       // the main command's output; nil files drop it
	OS      OS
	Root    string // where the sandbox's files are: "/" but in tests
	ReapAll bool   // true for PID 1
	// Exit, unless nil, ends the process once a stop request is through.
	// PID 1 needs it: its reads cannot be interrupted, so that Serve would
	// wait for the host's next word.
	Exit func()
	// HangUpGrace is how long an exec that is to be hung up waits for
	// somebody to attach again; 0 = 10 s.
	HangUpGrace time.Duration
}

// Server is the state of one sandbox.
type Server struct {
	cfg      Config
	boot     time.Time
	link     *link
	host     *presence
	gate     *gate
	children *children
	log      *logs.Writer
	group    *life.Group
	requests chan struct{}

	freezing chan struct{} // a semaphore: one freeze, thaw, identity or stop at a time
	frozen   frozen        // guarded by freezing
	stopped  chan struct{} // closed when stop is through

	mu       sync.Mutex // guards what follows
	main     *mainCommand
	starting bool
	execs    map[string]*exec
	order    []string // ids of execs as they were started
	identity *proto.IdentityResult
	env      []string // of the identity, for every program
}

// mainCommand is the command that the sandbox is for.
type mainCommand struct {
	child *child
	pumps []*pump
}

// New returns a server. It does nothing before Serve.
func New(cfg Config) (*Server, error) {
	if len(cfg.Magic) != proto.MagicSize {
		return nil, errs.New(errs.InvalidArgument, "magic has %d bytes; %d are needed", len(cfg.Magic), proto.MagicSize)
	}
	if cfg.HangUpGrace == 0 {
		cfg.HangUpGrace = hangUpGrace
	}
	s := &Server{
		cfg: cfg, boot: time.Now(),
		link: newLink(cfg.Channel, cfg.Magic), gate: newGate(), host: newPresence(),
		children: &children{os: cfg.OS, all: cfg.ReapAll, live: map[int]*child{}},
		requests: make(chan struct{}, maxRequests),
		freezing: make(chan struct{}, 1), stopped: make(chan struct{}),
		execs: map[string]*exec{},
	}
	if cfg.Logs[0] != nil && cfg.Logs[1] != nil {
		s.log = logs.NewWriter(cfg.Logs)
		if err := s.log.Detect(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Serve answers the host until a stop request is through, which returns nil,
// or ctx ends. Programs are not ended by it.
func (s *Server) Serve(ctx context.Context) error {
	s.group = life.NewGroup(ctx)
	unblock := context.AfterFunc(s.group.Context(), func() { _ = s.cfg.Channel.Close() })
	defer unblock()
	s.group.Go("reaper", s.children.reapLoop)
	s.group.Go("sessions", s.sessions)
	select {
	case <-s.stopped:
		if s.cfg.Exit != nil {
			s.cfg.Exit()
		}
	case <-s.group.Context().Done():
	}
	return s.group.Stop()
}

// sessions serves one session after the other.
func (s *Server) sessions(ctx context.Context) error {
	for {
		conn, err := s.link.next(ctx)
		if err != nil {
			return nil //nolint:nilerr // only the end of ctx ends it
		}
		if err := s.session(ctx, conn); err != nil {
			return err
		}
	}
}

func (s *Server) session(ctx context.Context, conn *session) error {
	mux, err := yamux.Server(conn, muxConfig())
	if err != nil {
		return errs.New(errs.Internal, "multiplexer: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.host.set(time.Time{})
	for here := false; ; {
		st, err := mux.AcceptStream()
		if err != nil {
			break
		}
		if !here { // a session without a word is how a host takes leave
			here = true
			s.host.set(time.Now())
		}
		s.group.Go("request", func(context.Context) error {
			s.serveStream(ctx, conn.epoch, st)
			return nil
		})
	}
	// Closed already; this waits until its goroutines are gone.
	if err := mux.Close(); err != nil {
		return errs.New(errs.Internal, "multiplexer: %w", err)
	}
	return nil
}

// muxConfig switches off everything that ticks or gives up by itself: who is
// not heard of may be a daemon being restarted, or another machine's clock.
func muxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = false
	c.StreamOpenTimeout = 0
	c.StreamCloseTimeout = 0
	c.ConnectionWriteTimeout = 10000 * time.Hour
	c.LogOutput = io.Discard
	return c
}

// serveStream answers one request. ctx ends with the session.
func (s *Server) serveStream(ctx context.Context, epoch uint64, st *yamux.Stream) {
	defer st.Close() //nolint:errcheck // the host sees the end or has gone
	select {
	case s.requests <- struct{}{}:
		defer func() { <-s.requests }()
	case <-ctx.Done():
		return
	}
	var req proto.Request
	if err := proto.ReadMessage(st, &req); err != nil {
		if !errors.Is(err, io.EOF) {
			_ = reply(st, nil, err) // when that fails the host is gone
		}
		return
	}
	s.dispatch(ctx, &call{st: st, req: req, epoch: epoch})
}

// reply sends a result or an error.
func reply(w io.Writer, result any, err error) error {
	if err != nil {
		return proto.WriteMessage(w, struct {
			Error *proto.Failure `json:"error"`
		}{proto.NewFailure(err)})
	}
	return proto.WriteMessage(w, struct {
		Result any `json:"result"`
	}{result})
}

// hello agrees on a version and says what the host finds.
func (s *Server) hello(args proto.HelloArgs, epoch uint64) (proto.HelloResult, error) {
	if args.Min > proto.Version || args.Max < 1 {
		return proto.HelloResult{}, errs.New(errs.Unsupported,
			"the sandbox speaks protocol version 1 to %d, the daemon %d to %d: use the brood it was made with", proto.Version, args.Min, args.Max)
	}
	r := proto.HelloResult{
		Version: min(args.Max, proto.Version), Epoch: epoch, BootNanos: s.boot.UnixNano(),
		NowNanos: time.Now().UnixNano(), Arch: arch, Frozen: s.gate.closed(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.main != nil {
		r.Started, r.MainPID, r.MainExit = true, s.main.child.pid, s.main.child.exited()
	}
	if s.identity != nil {
		r.UUID = s.identity.UUID
	}
	return r, nil
}

// identityEnv returns the environment that the identity adds.
func (s *Server) identityEnv() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.env
}

// lockFreezing makes the caller the only one that freezes, thaws or renews.
func (s *Server) lockFreezing(ctx context.Context) (release func(), err error) {
	select {
	case s.freezing <- struct{}{}:
		return func() { <-s.freezing }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// devNull opens the descriptor for streams that a program is not given.
func devNull() (*os.File, error) { return os.OpenFile(os.DevNull, os.O_RDWR, 0) }
