package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	rexec "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/fabric/blob/disk"
)

// Defaults of Config.
const (
	DefaultListen   = "127.0.0.1:9092"
	DefaultMaxBytes = 20 << 30
)

// Config says what is served to whom.
type Config struct {
	// Dir is the folder; one process serves it at a time.
	Dir string
	// MaxBytes bounds it; 0 is DefaultMaxBytes.
	MaxBytes int64
	// Listen is HOST:PORT; empty is DefaultListen, port 0 any free one.
	Listen string
	// Token is what clients must show as a bearer token; empty is none, which is
	// refused where others than this machine could connect.
	Token string
	// Cert and Key are files in PEM form; without them there is no TLS.
	Cert, Key string
	// ReadOnly refuses everything that would store something.
	ReadOnly bool
	// Ready is called once with the address that is listened on; it may be nil.
	Ready func(net.Addr)
}

const (
	// batchTotal is how many bytes of blobs one message may carry: with what is
	// around them within the four megabytes that gRPC clients take by default.
	batchTotal = 4<<20 - 256<<10
	// maxMessage is lenient: what is too much is then refused by name.
	maxMessage = 16 << 20
	// streamsEach bounds what one connection has open at once.
	streamsEach = 1000
	// drain is how long calls may go on once the server is asked to stop.
	drain = 5 * time.Second
)

// Serve listens until ctx ends. The end of ctx is no error.
func Serve(ctx context.Context, c Config) (err error) {
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	if err := c.check(ctx); err != nil {
		return err
	}
	options, err := c.options()
	if err != nil {
		return err
	}
	store, err := disk.Open(c.Dir, c.MaxBytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return errs.New(errs.Unavailable, "listen on %s: %w", c.Listen, err)
	}
	srv := grpc.NewServer(options...)
	Register(srv, store, c.ReadOnly)
	if c.Ready != nil {
		c.Ready(l.Addr())
	}
	return serve(ctx, srv, l)
}

// serve runs srv until ctx ends; what is going on then may end in peace, for a
// while.
func serve(ctx context.Context, srv *grpc.Server, l net.Listener) error {
	g := life.NewGroup(context.WithoutCancel(ctx))
	g.Go("serve", func(context.Context) error {
		if err := srv.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil
	})
	g.Go("stop", func(ended context.Context) error {
		select {
		case <-ctx.Done():
		case <-ended.Done(): // the listener failed
		}
		timer := time.AfterFunc(drain, srv.Stop)
		defer timer.Stop()
		srv.GracefulStop()
		return nil
	})
	if err := g.Wait(); err != nil {
		return errs.New(errs.Unavailable, "cache server: %w", err)
	}
	return nil
}

// check refuses what cannot be served, or would be open to strangers.
func (c Config) check(ctx context.Context) error {
	if c.Dir == "" {
		return errs.New(errs.InvalidArgument, "the cache needs a folder")
	}
	if c.MaxBytes < 0 {
		return errs.New(errs.InvalidArgument, "the cache's size %d is below zero", c.MaxBytes)
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return errs.New(errs.InvalidArgument, "listen on %q: write HOST:PORT", c.Listen)
	}
	if _, err := net.DefaultResolver.LookupPort(ctx, "tcp", port); err != nil {
		return errs.New(errs.InvalidArgument, "listen on %q: a port is a number up to 65535", c.Listen)
	}
	if c.Token == "" && !local(host) {
		return errs.New(errs.InvalidArgument,
			"listening on %s would give everyone who can reach this machine the cache to read and to poison: set a token, or listen on 127.0.0.1", c.Listen)
	}
	if (c.Cert == "") != (c.Key == "") {
		return errs.New(errs.InvalidArgument, "TLS needs both a certificate and its key")
	}
	return nil
}

// local says that only this machine reaches an address. An empty host is all
// of this machine's addresses.
func local(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func (c Config) options() ([]grpc.ServerOption, error) {
	o := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), grpc.MaxConcurrentStreams(streamsEach),
		grpc.InitialWindowSize(1 << 20), grpc.InitialConnWindowSize(8 << 20),
		grpc.ConnectionTimeout(20 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 60 * time.Second, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
	if c.Token != "" {
		g := newGuard(c.Token)
		o = append(o, grpc.UnaryInterceptor(g.unary), grpc.StreamInterceptor(g.stream))
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, errs.New(errs.InvalidArgument, "the server's certificate: %w", err)
		}
		o = append(o, grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}})))
	}
	return o, nil
}

// Register adds the services of a cache over store to a server.
func Register(r *grpc.Server, store *disk.Store, readOnly bool) {
	s := &service{store: store, readOnly: readOnly}
	rexec.RegisterCapabilitiesServer(r, s)
	rexec.RegisterActionCacheServer(r, s)
	rexec.RegisterContentAddressableStorageServer(r, s)
	bytestream.RegisterByteStreamServer(r, s)
}
