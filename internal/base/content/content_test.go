package content_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"brood/internal/base/content"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newFile(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Whatever the pieces, what is read is what was written, and zeros take no
// room.
func TestHoles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		want := make([]byte, r.IntN(200_000))
		for range r.IntN(6) {
			if at := r.IntN(len(want) + 1); at < len(want) {
				for i := range want[at:min(len(want), at+r.IntN(9000))] {
					want[at+i] = byte(1 + r.IntN(255))
				}
			}
		}
		f := newFile(t)
		h := content.NewHoles(f)
		for rest := want; len(rest) > 0; {
			n := min(len(rest), 1+r.IntN(70_000))
			_, err := h.Write(rest[:n])
			must(t, err)
			rest = rest[n:]
		}
		must(t, h.Finish())
		got, err := os.ReadFile(f.Name())
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes written, %d other ones read", len(want), len(got))
		}
	}
	f := newFile(t)
	h := content.NewHoles(f)
	_, err := io.CopyN(h, zeroReader{}, 64<<20)
	must(t, err)
	must(t, h.Finish())
	st, err := f.Stat()
	must(t, err)
	if blocks := st.Sys().(*syscall.Stat_t).Blocks; st.Size() != 64<<20 || blocks > 64 {
		t.Errorf("%d bytes in %d blocks", st.Size(), blocks)
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestReaderReadsPseudoFilesToTheirEnd(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: there is no /proc here")
	}
	for _, name := range []string{"/proc/version", "/sys/kernel/uevent_seqnum"} {
		f, err := os.Open(name)
		if os.IsNotExist(err) {
			t.Logf("there is no %s here", name)
			continue
		}
		must(t, err)
		defer f.Close()
		info, err := f.Stat()
		must(t, err)
		r, size, err := content.Reader(f, info)
		must(t, err)
		got, err := io.ReadAll(r)
		must(t, err)
		if want, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) || size != int64(len(want)) {
			t.Errorf("%s: %q of %d, want %q (%v)", name, got, size, want, err)
		}
	}
}

func TestLinkTime(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o700))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "d/l")))
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	want := time.Unix(1_000_000_000, 123_456_000)
	must(t, content.LinkTime(root, "d/l", want))
	if st, err := root.Lstat("d/l"); err != nil || runtime.GOOS == "linux" && !st.ModTime().Equal(want) {
		t.Errorf("%v, %v", st.ModTime(), err)
	}
}
