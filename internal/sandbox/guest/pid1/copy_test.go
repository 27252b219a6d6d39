//go:build linux

package pid1_test

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest"
)

func TestCopyInAndOut(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	src := t.TempDir()
	check(t, os.MkdirAll(filepath.Join(src, "tree/sub/empty"), 0o755))
	big := bytes.Repeat([]byte("0123456789abcdef"), 300_000)
	check(t, os.WriteFile(filepath.Join(src, "tree/sub/big"), big, 0o640))
	check(t, os.WriteFile(filepath.Join(src, "tree/run"), []byte("#!/bin/sh\n"), 0o755))
	check(t, os.Link(filepath.Join(src, "tree/run"), filepath.Join(src, "tree/sub/again")))
	check(t, os.Symlink("../run", filepath.Join(src, "tree/sub/link")))
	check(t, os.Symlink("/nowhere", filepath.Join(src, "tree/dangling")))
	old := time.Unix(1_000_000_000, 123_000_000)
	check(t, os.Chtimes(filepath.Join(src, "tree/run"), old, old))
	check(t, os.Chmod(filepath.Join(src, "tree/sub/empty"), 0o555))
	check(t, os.Chtimes(filepath.Join(src, "tree/sub/empty"), old, old))

	b.write("home/keep", "kept", 0o600)
	r, err := c.CopyIn(b.ctx, filepath.Join(src, "tree"), "/home")
	check(t, err)
	if r.Entries != 8 || r.Bytes != int64(len(big)+10) {
		t.Errorf("copied in %+v", r)
	}
	_, err = c.CopyIn(b.ctx, filepath.Join(src, "tree"), "/other")
	check(t, err)
	_, err = c.CopyIn(b.ctx, filepath.Join(src, "tree")+"/.", "/home")
	check(t, err)
	_, err = c.CopyIn(b.ctx, filepath.Join(src, "tree/run"), "/home/ran")
	check(t, err)
	back := t.TempDir()
	for _, at := range []string{"/home/tree", "/other"} {
		_, err = c.CopyOut(b.ctx, at, filepath.Join(back, "tree"))
		check(t, err)
		same(t, filepath.Join(src, "tree"), filepath.Join(back, "tree"))
		check(t, os.Chmod(filepath.Join(back, "tree/sub/empty"), 0o755))
		check(t, os.RemoveAll(filepath.Join(back, "tree")))
	}
	if b.read("home/keep") != "kept" || b.read("home/ran") != "#!/bin/sh\n" || b.read("home/run") != "#!/bin/sh\n" {
		t.Error("home has not what it should")
	}
	st, err := c.Stat(b.ctx, guest.StatArgs{Path: "/home/tree/run"})
	check(t, err)
	if !st.Exists || st.Mode != 0o755 || st.Size != 10 || st.ModTime != old.UnixNano() {
		t.Errorf("stat %+v", st)
	}
	check(t, os.Chmod(filepath.Join(b.root, "home/tree/sub/empty"), 0o755))
	check(t, os.Chmod(filepath.Join(b.root, "home/sub/empty"), 0o755))
	check(t, os.Chmod(filepath.Join(b.root, "other/sub/empty"), 0o755))
	check(t, os.Chmod(filepath.Join(src, "tree/sub/empty"), 0o755))
}

// same compares trees by what tar says of them: names, kinds, modes, times.
func same(t *testing.T, a, b string) {
	t.Helper()
	list := func(dir string) string {
		out, err := exec.Command("find", dir, "-printf", "%P %y %m %l %T@ %n\n").Output()
		check(t, err)
		lines := strings.Split(string(out), "\n")
		// The times of links are not kept.
		for i, l := range lines {
			if f := strings.Fields(l); len(f) > 2 && f[1] == "l" {
				lines[i] = strings.Join(f[:4], " ")
			}
		}
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	if x, y := list(a), list(b); x != y {
		t.Errorf("trees differ:\n%s\n---\n%s", x, y)
	}
	if out, err := exec.Command("diff", "-r", "--no-dereference", a, b).CombinedOutput(); err != nil {
		t.Errorf("contents differ: %s", out)
	}
}

func TestCopyRefusals(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	src := t.TempDir()
	check(t, os.WriteFile(filepath.Join(src, "file"), []byte("x"), 0o600))
	b.write("file", "old", 0o600)
	for name, tt := range map[string]struct {
		from, to string
		code     errs.Code
	}{
		"no source":        {src + "/none", "/", errs.NotFound},
		"no target folder": {src + "/file", "/no/such/", errs.NotFound},
		"no parent":        {src + "/file", "/no/such", errs.NotFound},
		"folder over file": {src, "/file", errs.FailedPrecondition},
		"relative":         {src + "/file", "file", errs.InvalidArgument},
	} {
		if _, err := c.CopyIn(b.ctx, tt.from, tt.to); !errs.Is(err, tt.code) {
			t.Errorf("%s: %v (%v)", name, err, errs.CodeOf(err))
		}
	}
	if _, err := c.CopyOut(b.ctx, "/none", src); !errs.Is(err, errs.NotFound) {
		t.Errorf("no source: %v", err)
	}
	long := "/" + strings.Repeat("n", 300)
	if _, err := c.CopyOut(b.ctx, long, src); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("too long a name: %v", err)
	}
	if _, err := c.Get(b.ctx, guest.GetArgs{Path: long, Name: "x"}, io.Discard); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("too long a name, unseen: %v", err)
	}
	if b.read("file") != "old" {
		t.Error("a refused copy changed a file")
	}
}

// What a sandbox sends is not trusted, and what a host sends neither.
func TestPutStaysBelowItsTarget(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	outside := t.TempDir()
	check(t, os.WriteFile(filepath.Join(outside, "victim"), []byte("safe"), 0o600))
	check(t, os.MkdirAll(filepath.Join(b.root, "in"), 0o755))
	file := func(name string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: 4}
	}
	link := func(name, to string, kind byte) *tar.Header {
		return &tar.Header{Name: name, Typeflag: kind, Linkname: to, Mode: 0o777}
	}
	for name, headers := range map[string][]*tar.Header{
		"absolute":       {file(outside + "/victim")},
		"parent":         {file("../victim")},
		"hidden parent":  {file("a/../../victim")},
		"through a link": {link("l", outside, tar.TypeSymlink), file("l/victim")},
		"through two":    {link("k", "..", tar.TypeSymlink), file("k/victim")},
		"hard link":      {link("h", "../"+filepath.Base(outside)+"/victim", tar.TypeLink)},
		"hard link via":  {link("m", outside, tar.TypeSymlink), link("n", "m/victim", tar.TypeLink)},
		"folder in link": {link("o", outside, tar.TypeSymlink), {Name: "o/new/", Typeflag: tar.TypeDir, Mode: 0o755}},
	} {
		var stream bytes.Buffer
		w := tar.NewWriter(&stream)
		for _, h := range headers {
			check(t, w.WriteHeader(h))
			if h.Size > 0 {
				_, err := w.Write([]byte("evil"))
				check(t, err)
			}
		}
		check(t, w.Close())
		_, err := c.Put(b.ctx, guest.PutArgs{Dir: "/in"}, &stream)
		switch errs.CodeOf(err) {
		case errs.InvalidArgument, errs.PermissionDenied, errs.Unsupported, errs.FailedPrecondition, errs.AlreadyExists:
		default:
			t.Errorf("%s: %v (%v)", name, err, errs.CodeOf(err))
		}
		check(t, os.RemoveAll(filepath.Join(b.root, "in")))
		check(t, os.MkdirAll(filepath.Join(b.root, "in"), 0o755))
	}
	content, err := os.ReadFile(filepath.Join(outside, "victim"))
	check(t, err)
	entries, err := os.ReadDir(outside)
	check(t, err)
	if string(content) != "safe" || len(entries) != 1 {
		t.Fatalf("outside was touched: %q, %v", content, entries)
	}
	if _, err := os.Stat(filepath.Join(b.root, "victim")); err == nil {
		t.Fatal("a file was made beside the target")
	}
}

func TestPutTellsASendersFailureAndItsOwn(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	broken := io.MultiReader(bytes.NewReader(make([]byte, 10)), failing{errs.New(errs.DataLoss, "source is broken")})
	if _, err := c.Put(b.ctx, guest.PutArgs{Dir: "/"}, broken); !errs.Is(err, errs.DataLoss) || !strings.Contains(err.Error(), "source is broken") {
		t.Errorf("a failing source: %v", err)
	}
	// More than all buffers hold, to a target that refuses at once.
	endless := io.LimitReader(zeros{}, 64<<20)
	if _, err := c.Put(b.ctx, guest.PutArgs{Dir: "/none"}, endless); !errs.Is(err, errs.NotFound) {
		t.Errorf("a refusing target: %v", err)
	}
	if _, err := c.Get(b.ctx, guest.GetArgs{Path: "/none", Name: "x"}, io.Discard); !errs.Is(err, errs.NotFound) {
		t.Errorf("get of nothing: %v", err)
	}
	b.write("big", strings.Repeat("x", 1<<20), 0o600)
	if _, err := c.Get(b.ctx, guest.GetArgs{Path: "/big", Name: "x"}, failingWriter{}); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("a failing writer: %v", err)
	}
	if _, err := c.Ping(b.ctx); err != nil {
		t.Errorf("the session did not survive: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("no room") }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestStopEndsEverything(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	_, err := c.Start(b.ctx, guest.StartArgs{Command: sh("trap 'echo bye; exit 6' TERM; echo up; while :; do sleep 0.01; done")})
	check(t, err)
	_, err = c.Exec(b.ctx, guest.ExecArgs{ID: "d", Command: sh("setsid sh -c 'trap \"\" TERM; sleep 1000' & trap '' TERM; sleep 1000")})
	check(t, err)
	b.eventually("main is up", func() bool { return len(readLog(t, b.logs)) > 0 })
	exit, err := c.Stop(b.ctx, limit)
	check(t, err)
	if exit == nil || exit.Code != 6 {
		t.Fatalf("main ended with %+v", exit)
	}
	<-c.Done()
	check(t, b.group.Wait())
	var text strings.Builder
	for _, e := range readLog(t, b.logs) {
		text.Write(e.Data)
	}
	if !strings.Contains(text.String(), "bye\n") {
		t.Errorf("the log has not the last words: %q", text.String())
	}
	left, err := b.os.Processes()
	check(t, err)
	for _, p := range left {
		if p.State != 'Z' {
			t.Errorf("process %d is left in state %c", p.PID, p.State)
		}
	}
}

// counted is a channel that counts.
type counted struct {
	io.ReadWriteCloser
	n atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// Of a sparse file only what is in it crosses the channel, and it is one again
// at the other end.
func TestHolesAreNotSent(t *testing.T) {
	const size, at = 256 << 20, 100<<20 + 7
	b := newBox(t)
	fd, err := unix.Dup(int(b.host.Fd()))
	check(t, err)
	ch, err := guest.OpenChannel(os.NewFile(uintptr(fd), "channel"))
	check(t, err)
	counts := &counted{ReadWriteCloser: ch}
	c, err := guest.Connect(b.ctx, counts, b.magic)
	check(t, err)
	defer c.Close()
	dir, data := t.TempDir(), make([]byte, 1<<20)
	rand.Read(data)
	f, err := os.Create(filepath.Join(dir, "sparse"))
	check(t, err)
	_, err = f.WriteAt(data, at)
	check(t, errors.Join(err, f.Truncate(size), f.Close()))
	moved := func(what string, f func() (guest.CopyResult, error)) {
		t.Helper()
		before := counts.n.Load()
		r, err := f()
		check(t, err)
		if n := counts.n.Load() - before; r.Bytes != size || n > 3<<19 {
			t.Errorf("%s: %d bytes of content, %d over the channel", what, r.Bytes, n)
		}
	}
	moved("in", func() (guest.CopyResult, error) { return c.CopyIn(b.ctx, f.Name(), "/inside") })
	moved("out", func() (guest.CopyResult, error) { return c.CopyOut(b.ctx, "/inside", filepath.Join(dir, "back")) })
	for _, name := range []string{filepath.Join(b.root, "inside"), filepath.Join(dir, "back")} {
		f, err := os.Open(name)
		check(t, err)
		st, err := f.Stat()
		check(t, err)
		got := make([]byte, len(data))
		_, err = f.ReadAt(got, at)
		check(t, errors.Join(err, f.Close()))
		if st.Size() != size || st.Sys().(*syscall.Stat_t).Blocks > 4<<10 || !bytes.Equal(got, data) {
			t.Errorf("%s has %d bytes in %d blocks", name, st.Size(), st.Sys().(*syscall.Stat_t).Blocks)
		}
	}
}
