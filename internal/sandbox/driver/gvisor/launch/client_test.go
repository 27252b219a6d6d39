//go:build linux

package launch

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/base/life"
)

// unblocked runs f beside the test; the returned function waits for it.
func unblocked(f func()) func() {
	var wg sync.WaitGroup
	wg.Go(f)
	return wg.Wait
}

// fakeLauncher answers requests in dir with answer; nil closes the connection
// instead.
func fakeLauncher(t *testing.T, dir string, answer func(n int64, req *Request, files []*os.File) (*Response, []*os.File)) {
	t.Helper()
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	var count atomic.Int64
	var mu sync.Mutex
	var conns []net.Conn
	group := life.NewGroup(context.Background())
	group.Go("accept", func(context.Context) error {
		for c, err := l.AcceptUnix(); err == nil; c, err = l.AcceptUnix() {
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			group.Go("connection", func(context.Context) error {
				defer func() { _ = c.Close() }()
				conn := NewConn(c)
				for {
					var req Request
					files, err := conn.Receive(&req)
					if err != nil {
						break
					}
					resp, send := answer(count.Add(1), &req, files)
					failed := resp == nil || conn.Send(resp, send...) != nil
					closeAll(files)
					if failed {
						break
					}
				}
				return nil
			})
		}
		return nil
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
}

func dial(t *testing.T, dir string) *Client {
	t.Helper()
	c, err := Dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var hello = &Response{Info: &Info{Protocol: Protocol, Version: "v"}}

func TestAnyPathLength(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 60))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	fakeLauncher(t, dir, func(int64, *Request, []*os.File) (*Response, []*os.File) { return hello, nil })
	info, err := dial(t, dir).Info(t.Context())
	if err != nil || info.Version != "v" {
		t.Errorf("%+v, %v", info, err)
	}
	st, err := os.Stat(filepath.Join(dir, SocketName))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", st.Mode(), err)
	}
}

func TestNobodyThere(t *testing.T) {
	_, err := Dial(t.Context(), t.TempDir())
	if !errs.Is(err, errs.Unavailable) {
		t.Errorf("dial: %v", err)
	}
	if _, err := Dial(t.Context(), "relative"); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("dial: %v", err)
	}
}

// What changes nothing is asked again when the launcher goes away; what may
// have been done is not.
func TestLauncherGoesAway(t *testing.T) {
	dir := t.TempDir()
	var fail atomic.Bool
	var starts atomic.Int64
	fakeLauncher(t, dir, func(_ int64, req *Request, _ []*os.File) (*Response, []*os.File) {
		if req.Op == OpStart {
			starts.Add(1)
			return nil, nil
		}
		if fail.CompareAndSwap(true, false) {
			return nil, nil
		}
		return hello, nil
	})
	c := dial(t, dir)
	fail.Store(true)
	if _, err := c.Info(t.Context()); err != nil {
		t.Errorf("info was not asked again: %v", err)
	}
	if err := c.Start(t.Context(), "a"); !errs.Is(err, errs.Unavailable) {
		t.Errorf("start: %v", err)
	}
	if n := starts.Load(); n != 1 {
		t.Errorf("start was asked %d times", n)
	}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	dir := t.TempDir()
	fakeLauncher(t, dir, func(_ int64, req *Request, _ []*os.File) (*Response, []*os.File) {
		if req.Op == OpInfo {
			return hello, nil
		}
		for _, code := range errs.Codes() {
			if req.ID == strings.ReplaceAll(code.String(), " ", "-") {
				return &Response{Failure: NewFailure(errs.New(code, "because"))}, nil
			}
		}
		return &Response{Failure: &Failure{Code: "from the future", Message: "because"}}, nil
	})
	c := dial(t, dir)
	for _, code := range errs.Codes() {
		err := c.Start(t.Context(), strings.ReplaceAll(code.String(), " ", "-"))
		if errs.CodeOf(err) != code || err.Error() != "because" {
			t.Errorf("%v came as %v %v", code, errs.CodeOf(err), err)
		}
	}
	if err := c.Start(t.Context(), "else"); !errs.Is(err, errs.Internal) {
		t.Errorf("an unknown code came as %v", err)
	}
}

func TestCallerGoesAway(t *testing.T) {
	dir := t.TempDir()
	asked := make(chan struct{})
	release := make(chan struct{})
	fakeLauncher(t, dir, func(_ int64, req *Request, _ []*os.File) (*Response, []*os.File) {
		if req.Op == OpWait {
			close(asked)
			<-release
		}
		return hello, nil
	})
	defer close(release)
	c := dial(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer unblocked(func() { <-asked; cancel() })()
	if _, err := c.Wait(ctx, "a"); !errs.Is(err, errs.Canceled) {
		t.Errorf("wait: %v", err)
	}
	if _, err := c.Info(t.Context()); err != nil {
		t.Errorf("the client is unusable afterwards: %v", err)
	}
}

// A descriptor that nobody asked for is closed, and an idle connection that
// broke is not used.
func TestStrayAnswers(t *testing.T) {
	dir := t.TempDir()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	fakeLauncher(t, dir, func(n int64, req *Request, _ []*os.File) (*Response, []*os.File) {
		switch req.Op {
		case OpChannel:
			return &Response{}, []*os.File{null, null}
		case OpStart:
			return &Response{Failure: &Failure{Code: "internal", Message: "no"}}, []*os.File{null}
		default:
			return hello, nil
		}
	})
	c := dial(t, dir)
	before := openFDs(t)
	if _, err := c.Channel(t.Context(), "a"); !errs.Is(err, errs.Internal) {
		t.Errorf("channel with two descriptors: %v", err)
	}
	if err := c.Start(t.Context(), "a"); !errs.Is(err, errs.Internal) {
		t.Errorf("start: %v", err)
	}
	if now := openFDs(t); now != before {
		t.Errorf("%d descriptors before, %d after", before, now)
	}
}

func TestManyRequestsAtOnce(t *testing.T) {
	dir := t.TempDir()
	fakeLauncher(t, dir, func(_ int64, req *Request, files []*os.File) (*Response, []*os.File) {
		if req.Op != OpCreate {
			return hello, nil
		}
		content, err := io.ReadAll(io.NewSectionReader(files[0], 0, 100))
		if err != nil || string(content) != req.Create.ID {
			return &Response{Failure: &Failure{Code: "data loss", Message: "another request's file"}}, nil
		}
		return &Response{}, files[:1]
	})
	c := dial(t, dir)
	group := life.NewGroup(t.Context())
	for i := range 40 {
		id := strings.Repeat("x", i+1)
		group.Go(id, func(ctx context.Context) error {
			f, err := os.Create(filepath.Join(dir, id))
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			if _, err := f.WriteString(id); err != nil {
				return err
			}
			got, err := c.Create(ctx, Create{
				ID: id, Argv: []string{"/x"}, Root: Root{Host: &HostRoot{Dir: "/x"}}, Files: []*os.File{f, f, f},
			})
			if err != nil {
				return err
			}
			return got.Close()
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) > maxIdle {
		t.Errorf("%d idle connections", len(c.idle))
	}
}

func TestClosedClient(t *testing.T) {
	dir := t.TempDir()
	fakeLauncher(t, dir, func(int64, *Request, []*os.File) (*Response, []*os.File) { return hello, nil })
	c := dial(t, dir)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Info(t.Context()); !errs.Is(err, errs.FailedPrecondition) {
		t.Errorf("a closed client: %v", err)
	}
}
