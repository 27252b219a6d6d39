//go:build linux

package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"brood/internal/base/errs"

	"golang.org/x/sys/unix"
)

// maxIdle bounds the connections a client keeps for reuse; more than this many
// requests at once open further ones and close them after use.
const maxIdle = 8

// Client asks one launcher. It is safe for concurrent use. Requests that
// change nothing, or nothing twice, are tried again when the launcher dies
// meanwhile; others report Unavailable, and the caller finds out with
// List what became of them.
type Client struct {
	dir string

	mu     sync.Mutex
	idle   []*Conn
	holder *process // whom connections lead to; nil: not known
	closed bool
}

// Dial returns a client of the launcher in dir once it has answered.
func Dial(ctx context.Context, dir string) (*Client, error) {
	if err := validatePath("run directory", dir); err != nil {
		return nil, err
	}
	c := &Client{dir: dir}
	if _, err := c.Info(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Close closes the idle connections. Sandboxes and launcher live on.
func (c *Client) Close() error {
	c.mu.Lock()
	idle := c.idle
	c.idle, c.closed = nil, true
	c.dropHolder()
	c.mu.Unlock()
	for _, conn := range idle {
		_ = conn.Close()
	}
	return nil
}

// Info asks who is there.
func (c *Client) Info(ctx context.Context) (Info, error) {
	resp, _, err := c.ask(ctx, &Request{Op: OpInfo}, nil, true)
	if err != nil {
		return Info{}, err
	}
	if resp.Info == nil {
		return Info{}, errs.New(errs.Internal, "launcher in %s answered without its description", c.dir)
	}
	return *resp.Info, nil
}

// Create makes a container in state created and returns the host's end of its
// channel, a stream socket whose other end is the guest's descriptor 3.
func (c *Client) Create(ctx context.Context, p Create) (*os.File, error) {
	send := p.Files
	if p.Root.EROFS != "" {
		image, err := os.Open(p.Root.EROFS)
		if err != nil {
			return nil, errs.New(errs.FailedPrecondition, "image: %w", err)
		}
		defer func() { _ = image.Close() }()
		send = append([]*os.File{image}, p.Files...)
	}
	_, files, err := c.ask(ctx, &Request{Op: OpCreate, Create: &p}, send, false)
	if err != nil {
		return nil, err
	}
	return onlyFile(files)
}

// Start runs a created container's argv.
func (c *Client) Start(ctx context.Context, id string) error {
	_, _, err := c.ask(ctx, &Request{Op: OpStart, ID: id}, nil, false)
	return err
}

// Restore lets a created container go on from a checkpoint. When it fails the
// container can only be destroyed.
func (c *Client) Restore(ctx context.Context, p Restore) error {
	return c.askWithDir(ctx, &Request{Op: OpRestore, ID: p.ID, Dir: p.ImageDir})
}

// Checkpoint saves a running container into an existing empty directory; the
// container goes on. When it fails the directory is empty again.
func (c *Client) Checkpoint(ctx context.Context, p Checkpoint) error {
	return c.askWithDir(ctx, &Request{Op: OpCheckpoint, ID: p.ID, Dir: p.Dir})
}

func (c *Client) askWithDir(ctx context.Context, req *Request) error {
	dir, err := os.OpenFile(req.Dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return errs.New(errs.FailedPrecondition, "%s: %w", req.Op, err)
	}
	defer func() { _ = dir.Close() }()
	_, _, err = c.ask(ctx, req, []*os.File{dir}, false)
	return err
}

// Destroy kills a container in whatever state and removes all it held. A
// container that does not exist is destroyed already.
func (c *Client) Destroy(ctx context.Context, id string) error {
	_, _, err := c.ask(ctx, &Request{Op: OpDestroy, ID: id}, nil, true)
	return err
}

// List returns all containers, sorted by id.
func (c *Client) List(ctx context.Context) ([]Container, error) {
	resp, _, err := c.ask(ctx, &Request{Op: OpList}, nil, true)
	if err != nil {
		return nil, err
	}
	return resp.Containers, nil
}

// Channel returns another descriptor of the host's end of a container's
// channel. All descriptors share one stream: only one of them may be read.
func (c *Client) Channel(ctx context.Context, id string) (*os.File, error) {
	_, files, err := c.ask(ctx, &Request{Op: OpChannel, ID: id}, nil, true)
	if err != nil {
		return nil, err
	}
	return onlyFile(files)
}

// Wait blocks until the container's process 1 has ended, or the container is
// destroyed.
func (c *Client) Wait(ctx context.Context, id string) (Exit, error) {
	for {
		resp, _, err := c.ask(ctx, &Request{Op: OpWait, ID: id}, nil, true)
		if err != nil {
			return Exit{}, err
		}
		if resp.Exit != nil {
			return *resp.Exit, nil
		}
	}
}

// Stop ends launcher and holder and waits until they are gone. While there
// are containers it is refused, unless force, which destroys them first.
func (c *Client) Stop(ctx context.Context, force bool) error {
	conn, cred, err := connect(ctx, c.dir)
	if err != nil {
		return c.unavailable(ctx, err)
	}
	// Opened while the holder certainly lives, so that the number cannot be
	// another process's.
	pidfd, err := unix.PidfdOpen(int(cred.Pid), 0)
	if err != nil {
		_ = conn.Close()
		return errs.New(errs.Unavailable, "watch holder in %s: %w", c.dir, err)
	}
	defer func() { _ = unix.Close(pidfd) }()
	w := NewConn(conn)
	defer func() { _ = w.Close() }()
	if _, _, err := c.exchange(ctx, w, &Request{Op: OpStop, Force: force}, nil); err != nil {
		return err
	}
	_ = c.Close()
	return waitGone(ctx, pidfd)
}

// waitGone returns when the process of pidfd has ended.
func waitGone(ctx context.Context, pidfd int) error {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 50)
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return errs.New(errs.Internal, "wait for holder: %w", err)
		case ctx.Err() != nil:
			return fmt.Errorf("wait for holder to end: %w", ctx.Err())
		}
	}
}

// A request that may be repeated is tried so often: once on a connection that
// a launcher left behind, once on one that a dying launcher still accepted, and
// the rest for a launcher that dies at its start.
const (
	maxTries   = 5
	retryPause = 10 * time.Millisecond // doubles each time
)

// ask sends one request and returns the answer. When it may be repeated it is
// tried again as long as the launcher goes away.
func (c *Client) ask(ctx context.Context, req *Request, files []*os.File, repeat bool) (*Response, []*os.File, error) {
	if err := req.Validate(len(files)); err != nil {
		return nil, nil, err
	}
	for try := 1; ; try++ {
		conn, err := c.take(ctx)
		if err != nil {
			return nil, nil, err
		}
		resp, got, err := c.exchange(ctx, conn, req, files)
		if err != nil && resp == nil {
			_ = conn.Close()
			if !repeat || try == maxTries || !errs.Is(err, errs.Unavailable) {
				return nil, nil, err
			}
			if !pause(ctx, retryPause<<(try-1)) {
				return nil, nil, fmt.Errorf("%s: %w", req.Op, ctx.Err())
			}
			continue
		}
		c.put(conn)
		return resp, got, err
	}
}

// pause reports whether d went by before the context ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// exchange sends req on conn and receives the answer. The response is nil
// when the connection cannot be used any more.
func (c *Client) exchange(ctx context.Context, conn *Conn, req *Request, files []*os.File) (*Response, []*os.File, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	var resp Response
	err := conn.Send(req, files...)
	var got []*os.File
	if err == nil {
		got, err = conn.Receive(&resp)
	}
	if !stop() && err == nil {
		// The context ended in the last moment: the answer is whole, the
		// connection is not.
		closeAll(got)
		return nil, nil, fmt.Errorf("%s: %w", req.Op, ctx.Err())
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, nil, fmt.Errorf("%s: %w", req.Op, ctx.Err())
	case errors.Is(err, ErrProtocol):
		return nil, nil, errs.New(errs.Unsupported, "launcher in %s: %w; use the brood that started it, or stop its sandboxes", c.dir, err)
	case err != nil:
		return nil, nil, errs.New(errs.Unavailable, "launcher in %s went away during %s: %w", c.dir, req.Op, err)
	case resp.Failure != nil:
		closeAll(got)
		return &resp, nil, resp.Failure.Err()
	}
	return &resp, got, nil
}

// take returns an idle connection that is still open, or a new one.
func (c *Client) take(ctx context.Context) (*Conn, error) {
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, errs.New(errs.FailedPrecondition, "client of %s is closed", c.dir)
		}
		var conn *Conn
		if n := len(c.idle); n > 0 {
			conn, c.idle = c.idle[n-1], c.idle[:n-1]
		}
		c.mu.Unlock()
		if conn == nil {
			u, cred, err := connect(ctx, c.dir)
			if err != nil {
				return nil, c.unavailable(ctx, err)
			}
			c.note(int(cred.Pid))
			return NewConn(u), nil
		}
		if conn.quiet() {
			return conn, nil
		}
		_ = conn.Close()
	}
}

func (c *Client) put(conn *Conn) {
	c.mu.Lock()
	if !c.closed && len(c.idle) < maxIdle {
		c.idle = append(c.idle, conn)
		conn = nil
	}
	c.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
}

func (c *Client) unavailable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("connect to launcher in %s: %w", c.dir, ctx.Err())
	}
	return errs.New(errs.Unavailable, "no launcher answers in %s; it has to be started: %w", c.dir, err)
}

// quiet reports whether the connection is open with nothing to read, which is
// what an idle one must be.
func (c *Conn) quiet() bool {
	raw, err := c.u.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, rerr := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		quiet = errors.Is(rerr, unix.EAGAIN)
	})
	return err == nil && quiet
}

func onlyFile(files []*os.File) (*os.File, error) {
	if len(files) != 1 {
		closeAll(files)
		return nil, errs.New(errs.Internal, "launcher answered with %d descriptors instead of the channel", len(files))
	}
	return files[0], nil
}

// answerPatience bounds how long a start waits between two looks at the socket.
const answerPatience = 20 * time.Millisecond
