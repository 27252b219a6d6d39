package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"connectrpc.com/connect"

	"brood/internal/base/errs"
	"brood/internal/home"
)

// link is the way to a daemon.
type link struct {
	http  *http.Client
	url   string
	where string // for messages
	token string
}

// socketLink leads through a Unix socket. The host in the URL is for the Host
// header only.
func socketLink(path string) *link {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := home.DialSocket(ctx, path)
			return c, dialled(err)
		},
		DisableCompression: true,
		Protocols:          new(http.Protocols),
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	return &link{http: &http.Client{Transport: t}, url: "http://localhost", where: path}
}

// urlLink leads to an address.
func urlLink(address, token string) (*link, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errs.New(errs.InvalidArgument, "%q is no address of a daemon: use http://127.0.0.1:PORT", address)
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return nil, errs.New(errs.InvalidArgument, "%s is another machine and has no TLS, so the token would travel in the clear: use https, or the daemon of this machine", address)
	}
	var d net.Dialer
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := d.DialContext(ctx, network, addr)
			return c, dialled(err)
		},
		DisableCompression: true,
		Protocols:          new(http.Protocols),
	}
	t.Protocols.SetHTTP2(true)
	t.Protocols.SetUnencryptedHTTP2(true)
	return &link{http: &http.Client{Transport: t}, url: strings.TrimRight(address, "/"), where: address, token: token}, nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// interceptors put the token on every call.
func (l *link) interceptors() []connect.Interceptor {
	if l.token == "" {
		return nil
	}
	return []connect.Interceptor{bearer("Bearer " + l.token)}
}

type bearer string

func (b bearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		req.Header().Set("Authorization", string(b))
		return next(ctx, req)
	}
}

func (b bearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		conn.RequestHeader().Set("Authorization", string(b))
		return conn
	}
}

func (b bearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// unreachable marks errors of connecting: the request was never sent.
type unreachable struct{ error }

func (u *unreachable) Unwrap() error { return u.error }

func dialled(err error) error {
	if err == nil {
		return nil
	}
	return &unreachable{err}
}

// unreached reports whether a call failed before anybody heard of it.
func unreached(err error) bool {
	var u *unreachable
	return errors.As(err, &u)
}
