//go:build linux

package launch

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns two connected ends; raw is the second one's socket.
func pair(t testing.TB) (a *Conn, raw *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conns := make([]*net.UnixConn, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c.(*net.UnixConn)
		t.Cleanup(func() { _ = c.Close() })
	}
	return NewConn(conns[0]), conns[1]
}

func frame(size uint32, files, protocol uint16, payload string) []byte {
	b := make([]byte, headerSize, headerSize+len(payload))
	binary.BigEndian.PutUint32(b[0:], size)
	binary.BigEndian.PutUint16(b[4:], files)
	binary.BigEndian.PutUint16(b[6:], protocol)
	return append(b, payload...)
}

func openFDs(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestMessagesCarryFiles(t *testing.T) {
	a, raw := pair(t)
	b := NewConn(raw)
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	want := Request{Op: OpCreate, Create: &Create{ID: "a", Argv: []string{"/x"}, Files: []*os.File{f}}}
	for round := range 3 {
		if err := a.Send(&want, f, f); err != nil {
			t.Fatal(err)
		}
		var got Request
		files, err := b.Receive(&got)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) != 2 || got.Create == nil || got.Create.ID != "a" || got.Create.Files != nil {
			t.Fatalf("round %d: got %+v and %d files", round, got, len(files))
		}
		content, err := io.ReadAll(io.NewSectionReader(files[1], 0, 100))
		if err != nil || string(content) != "content" {
			t.Errorf("the file reads %q, %v", content, err)
		}
		closeAll(files)
	}
}

func TestLargeMessage(t *testing.T) {
	a, raw := pair(t)
	b := NewConn(raw)
	list := Response{Containers: make([]Container, 20000)}
	for i := range list.Containers {
		list.Containers[i] = Container{ID: strings.Repeat("x", 64), Status: Running, PID: 1 << 30}
	}
	sent := make(chan error, 1)
	stop := unblocked(func() { sent <- a.Send(&list) })
	defer stop()
	var got Response
	if _, err := b.Receive(&got); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil || len(got.Containers) != 20000 {
		t.Errorf("%d containers, %v", len(got.Containers), err)
	}
	if err := a.Send(&Response{Failure: &Failure{Message: strings.Repeat("x", maxPayload)}}); err == nil {
		t.Error("a message above the bound was sent")
	}
}

func TestBrokenFrames(t *testing.T) {
	before := openFDs(t)
	for name, c := range map[string]struct {
		bytes []byte
		want  error
	}{
		"nothing":          {nil, io.EOF},
		"half a header":    {frame(2, 0, Protocol, "")[:5], io.ErrUnexpectedEOF},
		"half a payload":   {frame(20, 0, Protocol, `{"op":"i`), io.ErrUnexpectedEOF},
		"other protocol":   {frame(2, 0, Protocol+1, "{}"), ErrProtocol},
		"too large":        {frame(maxPayload+1, 0, Protocol, "{}"), nil},
		"missing files":    {frame(2, 1, Protocol, "{}"), nil},
		"unknown field":    {frame(9, 0, Protocol, `{"opp":1}`), nil},
		"bytes after":      {frame(4, 0, Protocol, `{}{}`), nil},
		"empty":            {frame(0, 0, Protocol, ""), io.ErrUnexpectedEOF},
		"not an object":    {frame(2, 0, Protocol, "[]"), nil},
		"wrong field type": {frame(8, 0, Protocol, `{"op":1}`), nil},
	} {
		t.Run(name, func(t *testing.T) {
			a, raw := pair(t)
			if _, err := raw.Write(c.bytes); err != nil {
				t.Fatal(err)
			}
			_ = raw.Close()
			var got Request
			files, err := a.Receive(&got)
			if err == nil || len(files) != 0 {
				t.Fatalf("accepted as %+v with %d files", got, len(files))
			}
			if c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
		})
	}
	if now := openFDs(t); now > before {
		t.Errorf("%d descriptors before, %d after", before, now)
	}
}

// Files of a message that is refused are closed.
func TestRefusedFilesAreClosed(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	rights := unix.UnixRights(int(null.Fd()), int(null.Fd()))
	for _, bytes := range [][]byte{
		frame(2, 1, Protocol, "{}"),
		frame(2, 2, Protocol+1, "{}"),
		frame(2, 2, Protocol, "[]"),
		frame(2, 2, Protocol, "{}")[:7],
	} {
		a, raw := pair(t)
		before := openFDs(t)
		if _, _, err := raw.WriteMsgUnix(bytes, rights, nil); err != nil {
			t.Fatal(err)
		}
		if err := raw.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		var got Request
		if files, err := a.Receive(&got); err == nil || files != nil {
			t.Errorf("accepted %q with %d files", bytes, len(files))
		}
		if now := openFDs(t); now != before {
			t.Errorf("%q: %d descriptors before, %d after", bytes, before, now)
		}
	}
}

// FuzzReceive feeds whatever bytes: no panic, no unbounded memory, and what is
// accepted can be sent again and stays the same.
func FuzzReceive(f *testing.F) {
	f.Add(frame(13, 0, Protocol, `{"op":"info"}`))
	f.Add(frame(2, 0, Protocol, "{}"))
	f.Add(frame(1<<31, 65535, 9, "x"))
	f.Add([]byte{})
	seed, err := json.Marshal(Request{Op: OpCreate, Create: &Create{
		ID: "a-1", Argv: []string{"/init"}, Env: []string{"A=b"}, Cwd: "/",
		Root: Root{Host: &HostRoot{Dir: "/s", Binds: []Bind{{Source: "/usr", Target: "/usr", ReadOnly: true}}}},
	}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frame(uint32(len(seed)), 0, Protocol, string(seed)))
	f.Fuzz(func(t *testing.T, bytes []byte) {
		if len(bytes) > 100<<10 {
			t.Skip("larger than the socket's buffer")
		}
		a, raw := pair(t)
		if _, err := raw.Write(bytes); err != nil {
			t.Fatal(err)
		}
		_ = raw.Close()
		var got Request
		if _, err := a.Receive(&got); err != nil {
			return
		}
		if got.Validate(0) != nil {
			return
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var twice Request
		if err := decode(again, &twice); err != nil {
			t.Errorf("%s: %v", again, err)
		}
		if err := twice.Validate(0); err != nil {
			t.Errorf("%s was valid before: %v", again, err)
		}
	})
}
