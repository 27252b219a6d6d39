//go:build linux

package pid1

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/sandbox/guest/proto"
)

// dialLimit bounds a connection to this sandbox's own loopback, which either
// works at once or not at all.
const dialLimit = 5 * time.Second

// serveDial connects to a port inside and carries bytes both ways until both
// sides have said all. While processes are frozen nothing is carried.
func (s *Server) serveDial(ctx context.Context, c *call) {
	a, err := args[proto.DialArgs](c)
	if err != nil {
		_ = reply(c.st, nil, err)
		return
	}
	d := net.Dialer{Timeout: dialLimit}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(a.Port))))
	if err != nil {
		_ = reply(c.st, nil, errs.New(errs.Unavailable, "port %d of the sandbox: %w", a.Port, err))
		return
	}
	defer conn.Close()
	if reply(c.st, none{}, nil) != nil {
		return
	}
	tcp := conn.(*net.TCPConn) // a "tcp" dial gives no other
	g := life.NewGroup(ctx)
	stop := context.AfterFunc(g.Context(), func() { _ = tcp.Close(); _ = c.st.Close() })
	defer stop()
	g.Go("in", func(ctx context.Context) error {
		_, err := io.Copy(tcp, gatedReader{ctx, s.gate, c.st})
		return errors.Join(err, tcp.CloseWrite())
	})
	g.Go("out", func(ctx context.Context) error {
		_, err := io.Copy(gatedWriter{ctx, s.gate, c.st}, tcp)
		return errors.Join(err, c.st.Close())
	})
	_ = g.Wait() // a connection that broke is all there is to say
}
