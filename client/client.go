package client

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"brood/api/brood/v1/broodv1connect"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/api/cua/daemon/v1/daemonv1connect"
	"brood/internal/base/errs"
	"brood/internal/home"
	"brood/internal/wire"
)

// Options say where the daemon is: by the folder it keeps its state in, by its
// socket, or by URL. At most one of the three is set.
type Options struct {
	// Home is the daemon's folder. When nothing is set it is $BROOD_HOME, or
	// ~/.brood.
	Home string
	// SocketPath is the daemon's Unix socket; it may be longer than a socket
	// address.
	SocketPath string
	// URL is the daemon's address, such as http://127.0.0.1:7777. Without TLS
	// only loopback is accepted, as the token would travel in the clear.
	URL string
	// Token goes with URL.
	Token string
	// Patience is how long a batch or a command whose connection was lost
	// tries to take it up again; 0: 30 s.
	Patience time.Duration
}

// Client talks to one daemon. Close it when done.
type Client struct {
	link     *link
	patience time.Duration
	reviving sync.Mutex
	revive   func(context.Context) error // nil: somebody else does
	info     *daemonv1.GetInfoResponse

	forks       daemonv1connect.ForkBatchServiceClient
	sandboxes   daemonv1connect.SandboxServiceClient
	daemon      daemonv1connect.DaemonServiceClient
	runtime     daemonv1connect.RuntimeServiceClient
	more        broodv1connect.SandboxServiceClient
	execs       broodv1connect.ExecServiceClient
	files       broodv1connect.FileServiceClient
	logs        broodv1connect.LogServiceClient
	checkpoints broodv1connect.CheckpointServiceClient
	batches     broodv1connect.BatchServiceClient
	images      broodv1connect.ImageServiceClient
}

// Dial connects to a daemon and asks who it is. When none answers the error's
// code is that of an unreachable daemon: reason RUNTIME, brood_code
// "unavailable".
func Dial(ctx context.Context, o Options) (*Client, error) {
	l, err := o.link()
	if err != nil {
		return nil, failed(err)
	}
	c := newClient(l, o.Patience)
	r, err := c.daemon.GetInfo(ctx, connect.NewRequest(&daemonv1.GetInfoRequest{}))
	if err != nil {
		c.Close()
		if unreached(err) && ctx.Err() == nil {
			if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
				err = errs.New(errs.Unavailable, "no daemon runs at %s: start one with \"brood daemon start\"", l.where)
			} else {
				err = errs.New(errs.Unavailable, "no daemon answers at %s (%w): start one with \"brood daemon start\"", l.where, err)
			}
		}
		return nil, ended(ctx, err)
	}
	c.info = r.Msg
	return c, nil
}

// WhenGone sets what is called when something that is watched (a batch, a
// command, output) lost the daemon and none is there a second later, neither
// the old nor the next one: to start one. Its error ends the watching. It is
// called by one at a time.
func (c *Client) WhenGone(start func(context.Context) error) { c.revive = start }

func newClient(l *link, patience time.Duration) *Client {
	if patience == 0 {
		patience = 30 * time.Second
	}
	opts := []connect.ClientOption{
		connect.WithReadMaxBytes(wire.MaxMessageBytes),
		connect.WithSendMaxBytes(wire.MaxMessageBytes),
		connect.WithAcceptCompression("gzip", nil, nil), // the daemon is near
		connect.WithInterceptors(l.interceptors()...),
	}
	return &Client{
		link: l, patience: patience,
		forks:       daemonv1connect.NewForkBatchServiceClient(l.http, l.url, opts...),
		sandboxes:   daemonv1connect.NewSandboxServiceClient(l.http, l.url, opts...),
		daemon:      daemonv1connect.NewDaemonServiceClient(l.http, l.url, opts...),
		runtime:     daemonv1connect.NewRuntimeServiceClient(l.http, l.url, opts...),
		more:        broodv1connect.NewSandboxServiceClient(l.http, l.url, opts...),
		execs:       broodv1connect.NewExecServiceClient(l.http, l.url, opts...),
		files:       broodv1connect.NewFileServiceClient(l.http, l.url, opts...),
		logs:        broodv1connect.NewLogServiceClient(l.http, l.url, opts...),
		checkpoints: broodv1connect.NewCheckpointServiceClient(l.http, l.url, opts...),
		batches:     broodv1connect.NewBatchServiceClient(l.http, l.url, opts...),
		images:      broodv1connect.NewImageServiceClient(l.http, l.url, opts...),
	}
}

// Close lets go of idle connections. Batches and commands go on.
func (c *Client) Close() { c.link.http.CloseIdleConnections() }

// Info is what the daemon said of itself when it was dialled.
func (c *Client) Info() *daemonv1.GetInfoResponse { return c.info }

// Shutdown ends the daemon; sandboxes live on.
func (c *Client) Shutdown(ctx context.Context) error {
	_, err := c.daemon.Shutdown(ctx, connect.NewRequest(&daemonv1.ShutdownRequest{}))
	return failed(err)
}

// Doctor lets the daemon try every requirement.
func (c *Client) Doctor(ctx context.Context) (*daemonv1.DoctorResponse, error) {
	return unary(ctx, c.runtime.Doctor, &daemonv1.DoctorRequest{})
}

// link finds the daemon that the options name.
func (o Options) link() (*link, error) {
	set := 0
	for _, s := range []string{o.Home, o.SocketPath, o.URL} {
		if s != "" {
			set++
		}
	}
	switch {
	case set > 1:
		return nil, errs.New(errs.InvalidArgument, "a daemon is named by home, by socket or by URL: set one of them")
	case o.URL != "":
		return urlLink(o.URL, o.Token)
	case o.Token != "":
		return nil, errs.New(errs.InvalidArgument, "a token goes with a URL")
	case o.SocketPath != "":
		return socketLink(o.SocketPath), nil
	}
	dir := o.Home
	if dir == "" {
		var err error
		if dir, err = home.Default(); err != nil {
			return nil, err
		}
	}
	return homeLink(home.At(dir))
}

// homeLink reads the daemon's discovery file; without one the socket is where
// it always is.
func homeLink(h *home.Home) (*link, error) {
	b, err := os.ReadFile(h.Discovery())
	if errors.Is(err, fs.ErrNotExist) {
		return socketLink(h.Socket()), nil
	}
	if err != nil {
		return nil, errs.New(errs.PermissionDenied, "%w", err)
	}
	d, err := wire.ParseDiscovery(b)
	if err != nil {
		return nil, err
	}
	if d.SocketPath != "" {
		return socketLink(d.SocketPath), nil
	}
	return urlLink(d.LoopbackURL, d.Token)
}

// unary makes a unary call with this package's errors.
func unary[Req, Res any](ctx context.Context, call func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req) (*Res, error) {
	r, err := call(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, ended(ctx, err)
	}
	return r.Msg, nil
}

// newKey draws a key that no other call has.
func newKey() string { return rand.Text() }
