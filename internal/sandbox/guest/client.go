package guest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/yamux"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/proto"
)

// MainID is the id that means the main command in Signal.
const MainID = proto.MainID

// ExitKey is the fact of a failed start's error (errs.MetaOf) that holds the
// exit code a shell would give: 126 not executable, 127 not found.
const ExitKey = "exit_code"

// Client is one session with a sandbox.
type Client struct {
	mux   *yamux.Session
	hello HelloResult
}

// Connect begins a session on conn, which belongs to the client from now on
// and is closed when Connect fails. Its Close must end a Read; see
// OpenChannel. magic is the sandbox's, proto.MagicSize bytes.
func Connect(ctx context.Context, conn io.ReadWriteCloser, magic []byte) (*Client, error) {
	c, err := connect(ctx, conn, magic)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		_ = conn.Close() // closed already when ctx ended or hello failed
		return nil, coded(fmt.Errorf("connect to the sandbox: %w", err))
	}
	return c, nil
}

func connect(ctx context.Context, conn io.ReadWriteCloser, magic []byte) (*Client, error) {
	if len(magic) != proto.MagicSize {
		return nil, errs.New(errs.InvalidArgument, "the channel's magic has %d bytes; %d are needed", len(magic), proto.MagicSize)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	nonce := make([]byte, proto.NonceSize)
	rand.Read(nonce) // never fails since Go 1.24
	ch, err := resync(conn, magic, nonce)
	if err != nil {
		return nil, err
	}
	config := yamux.DefaultConfig()
	config.EnableKeepAlive = false
	config.StreamOpenTimeout = 0
	config.StreamCloseTimeout = 0
	config.ConnectionWriteTimeout = 10000 * time.Hour // calls have contexts
	config.LogOutput = io.Discard
	mux, err := yamux.Client(ch, config)
	if err != nil {
		return nil, err
	}
	c := &Client{mux: mux}
	c.hello, err = invoke[HelloResult](ctx, c, proto.OpHello, proto.HelloArgs{Min: 1, Max: proto.Version})
	if err != nil {
		return nil, errors.Join(err, mux.Close())
	}
	return c, nil
}

// Hello returns what the guest said when the session began.
func (c *Client) Hello() HelloResult { return c.hello }

// Done is closed when the session has ended, by Close or by itself.
func (c *Client) Done() <-chan struct{} { return c.mux.CloseChan() }

// Close ends the session. What runs in the sandbox goes on.
func (c *Client) Close() error { return c.mux.Close() }

// Ping asks the guest for its wall clock.
func (c *Client) Ping(ctx context.Context) (time.Time, error) {
	r, err := invoke[proto.PingResult](ctx, c, proto.OpPing, nil)
	return time.Unix(0, r.NowNanos), err
}

// stream is one request's stream, which ends with its context.
type stream struct {
	*yamux.Stream
	ctx  context.Context //nolint:containedctx // a stream is one call
	stop func() bool
}

// open begins a request.
func (c *Client) open(ctx context.Context, op string, args any) (*stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	req := proto.Request{Op: op}
	if args != nil {
		var err error
		if req.Args, err = json.Marshal(args); err != nil {
			return nil, errs.New(errs.InvalidArgument, "encode %s: %w", op, err)
		}
	}
	st, err := c.mux.OpenStream()
	if err != nil {
		return nil, lost(ctx, err)
	}
	s := &stream{Stream: st, ctx: ctx}
	s.stop = context.AfterFunc(ctx, func() {
		_ = st.SetDeadline(time.Unix(1, 0)) // never fails
		_ = st.Close()                      // the guest stops waiting
	})
	if err := proto.WriteMessage(st, req); err != nil {
		s.end()
		return nil, lost(ctx, err)
	}
	return s, nil
}

// end closes the stream and lets go of its context.
func (s *stream) end() {
	s.stop()
	_ = s.Close() // the guest is told, or gone
}

// result reads the reply.
func result[R any](s *stream) (R, error) {
	var v R
	var r proto.Reply
	if err := proto.ReadMessage(s, &r); err != nil {
		return v, lost(s.ctx, err)
	}
	if r.Error != nil {
		return v, r.Error.Err()
	}
	if len(r.Result) > 0 {
		if err := json.Unmarshal(r.Result, &v); err != nil {
			return v, errs.New(errs.DataLoss, "the sandbox's answer is not understood: %w", err)
		}
	}
	return v, nil
}

// invoke is a request that is one message each way.
func invoke[R any](ctx context.Context, c *Client, op string, args any) (R, error) {
	s, err := c.open(ctx, op, args)
	if err != nil {
		var none R
		return none, err
	}
	defer s.end()
	return result[R](s)
}

// lost says why a stream broke: the caller's context first.
func lost(ctx context.Context, err error) error {
	if e := ctx.Err(); e != nil {
		return e
	}
	return coded(err)
}

// coded gives an error of the channel its code.
func coded(err error) error {
	if err == nil || errs.CodeOf(err) != errs.Internal {
		return err
	}
	return errs.New(errs.Unavailable, "the sandbox's channel is closed: %w", err)
}
