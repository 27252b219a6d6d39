package erofs_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	reader "github.com/erofs/go-erofs"

	"brood/internal/sandbox/image/erofs"
)

var when = time.Unix(1_700_000_000, 123_456_789)

// sample is a tree with what images hold and what breaks writers: sizes
// around the block and the inline limit, names that sort before ".", wide
// and deep directories, long targets, hard links, holes.
func sample(t testing.TB, out erofs.Output) map[string]string {
	t.Helper()
	w := erofs.NewWriter(out, nil)
	root := erofs.NewDir(0o755)
	contents := map[string]string{}
	file := func(dir *erofs.Node, path, name, content string, mode uint16) *erofs.Node {
		n, err := w.NewFile(mode, strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		n.UID, n.GID, n.Mtime = 1000, 70_000, when
		if err := dir.Add(name, n); err != nil {
			t.Fatal(err)
		}
		contents[path+name] = content
		return n
	}
	add := func(dir *erofs.Node, name string, n *erofs.Node) *erofs.Node {
		if err := dir.Add(name, n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, size := range []int{0, 1, 100, 4031, 4032, 4033, 4095, 4096, 4097, 8192, 1 << 20, 1<<20 + 1, 3<<20 - 1} {
		file(root, "", fmt.Sprintf("size-%d", size), noise(size), 0o644)
	}
	file(root, "", "holes", strings.Repeat("\x00", 3<<20)+"end", 0o600)
	file(root, "", "!before-dot", "x", 0o4755)
	first := file(root, "", "name with \xff and\nnewline", "linked", 0o640)
	add(root, "link", first)
	contents["link"] = "linked"
	wide := add(root, "wide", erofs.NewDir(0o1777))
	for i := range 3000 {
		file(wide, "wide/", fmt.Sprintf("entry-%04d-%s", i, strings.Repeat("n", i%108)), fmt.Sprint(i), 0o644)
	}
	add(root, "empty", erofs.NewDir(0o700))
	deep, path := root, ""
	for range 60 {
		deep = add(deep, "d", erofs.NewDir(0o755))
		path += "d/"
	}
	file(deep, path, strings.Repeat("m", erofs.MaxName), "deep", 0o644)
	for _, size := range []int{1, 59, 4032, 4033, 4095} {
		n, err := erofs.NewSymlink(strings.Repeat("t", size))
		if err != nil {
			t.Fatal(err)
		}
		add(root, fmt.Sprintf("symlink-%d", size), n)
	}
	if err := w.Finish(root); err != nil {
		t.Fatal(err)
	}
	return contents
}

func noise(n int) string {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = r.Read(b) // never fails
	return string(b)
}

func imageFile(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestAnotherReaderSeesTheTree reads the image with an implementation that
// shares nothing with the writer.
func TestAnotherReaderSeesTheTree(t *testing.T) {
	f := imageFile(t)
	want := sample(t, f)
	img, err := reader.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	err = fs.WalkDir(img, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		seen[path] = true
		got, err := fs.ReadFile(img, path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if string(got) != want[path] {
			return fmt.Errorf("%s: content of %d bytes differs from %d", path, len(got), len(want[path]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) != len(want) {
		t.Errorf("%d files seen, %d written", len(seen), len(want))
	}
}

func TestMetadata(t *testing.T) {
	f := imageFile(t)
	sample(t, f)
	img, err := reader.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	stat := func(path string) (fs.FileInfo, *reader.Stat) {
		fi, err := fs.Lstat(img, path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return fi, fi.Sys().(*reader.Stat)
	}
	a, as := stat("name with \xff and\nnewline")
	_, bs := stat("link")
	if as.Ino != bs.Ino || as.Nlink != 2 {
		t.Errorf("hard links: inodes %d and %d, %d links", as.Ino, bs.Ino, as.Nlink)
	}
	if as.UID != 1000 || as.GID != 70_000 || !a.ModTime().Equal(when) || a.Mode().Perm() != 0o640 {
		t.Errorf("metadata = %+v, mode %v, time %v", as, a.Mode(), a.ModTime())
	}
	// This reader leaves the bits above the permissions where the disk has them.
	if fi, _ := stat("!before-dot"); fi.Mode()&0o7777 != 0o4755 {
		t.Errorf("set-user-ID lost: %v", fi.Mode())
	}
	if fi, st := stat("wide"); fi.Mode()&0o7777 != 0o1777 || st.Nlink != 2 {
		t.Errorf("sticky directory: %v, %d links", fi.Mode(), st.Nlink)
	}
	if _, st := stat("."); st.Nlink != 5 {
		t.Errorf("root has %d links, and three directories in it", st.Nlink)
	}
}

func TestHolesTakeNoSpace(t *testing.T) {
	f := imageFile(t)
	w := erofs.NewWriter(f, nil)
	n, err := w.NewFile(0o644, io.LimitReader(zeroReader{}, 64<<20))
	if err != nil {
		t.Fatal(err)
	}
	root := erofs.NewDir(0o755)
	if err := root.Add("holes", n); err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(root); err != nil {
		t.Fatal(err)
	}
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if used := allocated(st); used > 1<<20 {
		t.Errorf("64 MiB of zeros take %d bytes", used)
	}
	if st.Size() < 64<<20 {
		t.Errorf("size = %d", st.Size())
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestSameTreeSameBytes(t *testing.T) {
	read := func() []byte {
		f := imageFile(t)
		sample(t, f)
		b, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	a, b := read(), read()
	if !bytes.Equal(a, b) {
		t.Error("two images of one tree differ")
	}
}

// TestSuperblockTellsContentApart: a runtime compares superblocks when it
// restores, so two images must not share one.
func TestSuperblockTellsContentApart(t *testing.T) {
	super := func(content string) []byte {
		f := imageFile(t)
		w := erofs.NewWriter(f, nil)
		n, err := w.NewFile(0o644, strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		root := erofs.NewDir(0o755)
		if err := root.Add("f", n); err != nil {
			t.Fatal(err)
		}
		if err := w.Finish(root); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 128)
		if _, err := f.ReadAt(b, 1024); err != nil {
			t.Fatal(err)
		}
		return b
	}
	if bytes.Equal(super("aaaa"), super("aaab")) {
		t.Error("one byte of content changed and the superblock did not")
	}
}

func TestRefusals(t *testing.T) {
	root := erofs.NewDir(0o755)
	for _, name := range []string{"", ".", "..", "a/b", "a\x00", strings.Repeat("x", 256)} {
		if root.Add(name, erofs.NewDir(0o755)) == nil {
			t.Errorf("name %q accepted", name)
		}
	}
	for _, target := range []string{"", strings.Repeat("x", 4096)} {
		if _, err := erofs.NewSymlink(target); err == nil {
			t.Errorf("target of %d bytes accepted", len(target))
		}
	}
	twice := erofs.NewDir(0o755)
	for _, name := range []string{"a", "b"} {
		if err := root.Add(name, twice); err != nil {
			t.Fatal(err)
		}
	}
	if erofs.NewWriter(imageFile(t), nil).Finish(root) == nil {
		t.Error("a directory with two names accepted")
	}
}
