package keep

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"

	"brood/internal/sandbox/driver/gvisor/launch"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect serves s to a new client, as the holder does for each launcher.
func connect(t *testing.T, s *Store, quit func()) (*Client, *launch.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conns := make([]*launch.Conn, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = launch.NewConn(c.(*net.UnixConn))
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(conns[0], quit) })
	t.Cleanup(func() {
		_ = conns[0].Close()
		_ = conns[1].Close()
		wg.Wait()
	})
	return NewClient(conns[1]), conns[1]
}

func TestDescriptorsOutliveTheirGiver(t *testing.T) {
	s := NewStore()
	first, conn := connect(t, s, nil)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if err := first.Put("a", w); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	_ = conn.Close()

	second, _ := connect(t, s, nil)
	names, err := second.Names()
	if err != nil || len(names) != 1 || names[0] != "a" {
		t.Fatalf("names %q, %v", names, err)
	}
	for range 2 {
		f, err := second.Get("a")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("x"); err != nil {
			t.Error(err)
		}
		_ = f.Close()
	}
	if err := second.Drop("a"); err != nil {
		t.Error(err)
	}
	if err := second.Drop("a"); err != nil {
		t.Errorf("drop twice: %v", err)
	}
	// All writing ends are closed now.
	if got, err := io.ReadAll(r); err != nil || string(got) != "xx" {
		t.Errorf("read %q, %v", got, err)
	}
	if _, err := second.Get("a"); !errors.Is(err, ErrNone) {
		t.Errorf("get what was dropped: %v", err)
	}
}

func TestPutReplaces(t *testing.T) {
	s := NewStore()
	c, _ := connect(t, s, nil)
	old, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Close() }()
	if err := c.Put("a", w); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	if err := c.Put("a", null); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(old); err != nil || len(got) != 0 {
		t.Errorf("the replaced one is open: %q, %v", got, err)
	}
}

func TestStrangeRequests(t *testing.T) {
	s := NewStore()
	c, _ := connect(t, s, nil)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	if _, _, err := c.ask(message{Op: "put", Name: "a"}); err == nil {
		t.Error("put without a file")
	}
	if _, _, err := c.ask(message{Op: "names"}, null); err == nil {
		t.Error("names with a file")
	}
	if _, _, err := c.ask(message{Op: "fly"}); err == nil {
		t.Error("an unknown request")
	}
	if names, err := c.Names(); err != nil || len(names) != 0 {
		t.Errorf("names %q, %v", names, err)
	}
}

func TestQuit(t *testing.T) {
	quit := make(chan struct{})
	c, _ := connect(t, NewStore(), func() { close(quit) })
	if err := c.Quit(); err != nil {
		t.Fatal(err)
	}
	<-quit
}
