package blob

import (
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rexec "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"brood/internal/base/errs"
)

// ClientConfig says which cache a client uses.
type ClientConfig struct {
	// Address is grpc://HOST:PORT, or grpcs:// for TLS.
	Address string
	// Instance is the server's name for one of its caches; most have one without.
	Instance string
	// Headers go with every call. They are sent over TLS, or to this machine, or
	// where the caller says Plaintext.
	Headers map[string]string
	// Plaintext allows headers to leave this machine unencrypted.
	Plaintext bool
	// CA is a file of certificates to trust instead of the system's; Cert and Key
	// are files with what the client shows of itself.
	CA, Cert, Key string
	// Parallel is how many transfers run at once; 0 is 8.
	Parallel int
}

// Client talks to one cache.
type Client struct {
	address  string
	instance string
	headers  metadata.MD
	parallel int

	conn    *grpc.ClientConn
	actions rexec.ActionCacheClient
	cas     rexec.ContentAddressableStorageClient
	caps    rexec.CapabilitiesClient
	stream  bytestream.ByteStreamClient

	packers   sync.Pool // of *zstd.Encoder
	unpackers sync.Pool // of *zstd.Decoder

	answered atomic.Bool // the server has answered a call

	mu     sync.Mutex // guards limits
	limits *Limits    // nil until the server told
}

// maxMessage is the largest message that is taken from a server. Servers keep
// to four megabytes; some with a larger limit send more.
const maxMessage = 64 << 20

// Dial makes a client. It connects when it is first used.
func Dial(c ClientConfig) (*Client, error) {
	host, secure, err := parseAddress(c.Address)
	if err != nil {
		return nil, err
	}
	if err := CheckInstance(c.Instance); err != nil {
		return nil, err
	}
	if !secure && len(c.Headers) > 0 && !c.Plaintext && !loopback(host) {
		return nil, errs.New(errs.InvalidArgument,
			"the headers for %s would leave this machine unencrypted: use grpcs://, or allow plaintext", c.Address)
	}
	creds := insecure.NewCredentials()
	if secure {
		conf, err := clientTLS(c)
		if err != nil {
			return nil, err
		}
		creds = credentials.NewTLS(conf)
	}
	conn, err := grpc.NewClient("passthrough:///"+host,
		grpc.WithTransportCredentials(creds),
		grpc.WithUserAgent("brood"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithInitialWindowSize(4<<20), grpc.WithInitialConnWindowSize(16<<20),
		// A dead network is noticed though nothing is sent.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 60 * time.Second, Timeout: 20 * time.Second}),
	)
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, "cache address %q: %w", c.Address, err)
	}
	client := &Client{
		address: c.Address, instance: c.Instance, headers: metadata.New(c.Headers), parallel: c.Parallel,
		conn: conn, actions: rexec.NewActionCacheClient(conn), cas: rexec.NewContentAddressableStorageClient(conn),
		caps: rexec.NewCapabilitiesClient(conn), stream: bytestream.NewByteStreamClient(conn),
	}
	if client.parallel <= 0 {
		client.parallel = 8
	}
	return client, nil
}

// Name is how messages call the cache.
func (c *Client) Name() string { return c.address }

// Close ends the connection and what still goes over it.
func (c *Client) Close() error { return c.conn.Close() }

// parseAddress reads grpc://HOST:PORT and grpcs://HOST[:PORT].
func parseAddress(s string) (host string, secure bool, err error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "grpc" && u.Scheme != "grpcs" {
		return "", false, errs.New(errs.InvalidArgument, "cache address %q: write grpc://HOST:PORT, or grpcs://HOST:PORT for TLS", s)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return "", false, errs.New(errs.InvalidArgument,
			"cache address %q has more than a host and a port: credentials go into headers, an instance name has its own setting", s)
	}
	secure = u.Scheme == "grpcs"
	switch {
	case u.Port() != "":
		return u.Host, secure, nil
	case secure:
		return net.JoinHostPort(u.Hostname(), "443"), true, nil
	}
	return "", false, errs.New(errs.InvalidArgument, "cache address %q has no port", s)
}

func loopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// packer lends an encoder. Fast: the network is what is spared, not the disk.
func (c *Client) packer() (*zstd.Encoder, error) {
	if e, ok := c.packers.Get().(*zstd.Encoder); ok {
		return e, nil
	}
	return NewPacker()
}

// NewPacker returns an encoder that starts no goroutine.
func NewPacker() (*zstd.Encoder, error) {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1<<20))
	if err != nil {
		return nil, errs.New(errs.Internal, "zstd: %w", err)
	}
	return e, nil
}

func (c *Client) unpacker() (*zstd.Decoder, error) {
	if d, ok := c.unpackers.Get().(*zstd.Decoder); ok {
		return d, nil
	}
	return NewUnpacker()
}

// NewUnpacker returns a decoder that starts no goroutine and uses bounded
// memory, whatever it is given.
func NewUnpacker() (*zstd.Decoder, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(128<<20))
	if err != nil {
		return nil, errs.New(errs.Internal, "zstd: %w", err)
	}
	return d, nil
}
