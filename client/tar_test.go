package client

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"brood/internal/base/errs"
)

type entry struct {
	name, link string
	kind       byte
	data       string
}

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Size: int64(len(e.data)), Mode: 0o644, Format: tar.FormatPAX}
		if e.kind == tar.TypeDir {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sparseTar stands for a file of a tebibyte in a few bytes. archive/tar does not
// write such a stream; it is that of GNU tar's format 1.0.
func sparseTar(t testing.TB) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	data := "1\n1099511627775\n1\n" + strings.Repeat("\x00", 512-18) + "x"
	err := w.WriteHeader(&tar.Header{Name: "d", Typeflag: tar.TypeReg, Size: int64(len(data)), Mode: 0o644, Format: tar.FormatPAX,
		PAXRecords: map[string]string{"BROOD.xxxx.major": "1", "BROOD.xxxx.minor": "0", "BROOD.xxxx.name": "d", "BROOD.xxxx.realsize": "1099511627776"}})
	if err == nil {
		_, err = io.WriteString(w, data)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(b.Bytes(), []byte("BROOD.xxxx."), []byte("GNU.sparse."))
}

// hostile are streams that a sandbox might send to write where it should not.
func hostile(t testing.TB) map[string][]byte {
	dir, reg, sym, hard := byte(tar.TypeDir), byte(tar.TypeReg), byte(tar.TypeSymlink), byte(tar.TypeLink)
	return map[string][]byte{
		"parent":           tarOf(t, entry{name: "../x", kind: reg, data: "bad"}),
		"absolute":         tarOf(t, entry{name: "/x", kind: reg, data: "bad"}),
		"climb":            tarOf(t, entry{name: "d", kind: dir}, entry{name: "d/../../x", kind: reg, data: "bad"}),
		"sibling":          tarOf(t, entry{name: "d", kind: dir}, entry{name: "x", kind: reg, data: "bad"}),
		"through a link":   tarOf(t, entry{name: "d", kind: dir}, entry{name: "d/l", link: "../..", kind: sym}, entry{name: "d/l/x", kind: reg, data: "bad"}),
		"absolute link":    tarOf(t, entry{name: "d", kind: dir}, entry{name: "d/l", link: "/tmp", kind: sym}, entry{name: "d/l/.readtar-test-7c1e90", kind: reg, data: "bad"}),
		"top is a link":    tarOf(t, entry{name: "d", link: "..", kind: sym}, entry{name: "d/x", kind: reg, data: "bad"}),
		"over a link":      tarOf(t, entry{name: "d", kind: dir}, entry{name: "d/l", link: "../../x", kind: sym}, entry{name: "d/l", kind: reg, data: "fine"}),
		"hard link out":    tarOf(t, entry{name: "d", kind: dir}, entry{name: "d/h", link: "../x", kind: hard}),
		"hard link beside": tarOf(t, entry{name: "d", kind: dir}, entry{name: "d/h", link: "x", kind: hard}),
		"chmod by link":    tarOf(t, entry{name: "d", kind: dir}, entry{name: "d/l", link: "../../keep", kind: sym}, entry{name: "d/l", kind: dir}),
		"device":           tarOf(t, entry{name: "d", kind: dir}, entry{name: "d/null", kind: tar.TypeChar}),
		"sparse":           sparseTar(t),
		"empty":            tarOf(t),
		"nothing":          nil,
		"cut":              tarOf(t, entry{name: "d", kind: dir}, entry{name: "d/f", kind: reg})[:512],
		"garbage":          []byte("not a tar at all"),
		"deep top":         tarOf(t, entry{name: "a/b", kind: reg}),
	}
}

// unpackInto runs readTar with a folder around its root, and fails when that
// has anything new.
func unpackInto(t *testing.T, stream []byte, name string) error {
	t.Helper()
	outer := t.TempDir()
	if err := os.WriteFile(filepath.Join(outer, "keep"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	inner := filepath.Join(outer, "root")
	if err := os.Mkdir(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(inner)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	_, err = readTar(bytes.NewReader(stream), root, name)
	around, _ := os.ReadDir(outer)
	kept, _ := os.ReadFile(filepath.Join(outer, "keep"))
	st, _ := os.Stat(filepath.Join(outer, "keep"))
	if len(around) != 2 || string(kept) != "kept" || st.Mode() != 0o600 {
		t.Fatalf("something outside was touched: %v, %q, %v", around, kept, st.Mode())
	}
	if _, err := os.Lstat("/tmp/.readtar-test-7c1e90"); err == nil {
		t.Fatal("an absolute link was followed")
	}
	return err
}

func TestReadTarStaysInside(t *testing.T) {
	for name, stream := range hostile(t) {
		for _, as := range []string{"", "renamed", "."} {
			err := unpackInto(t, stream, as)
			if name != "over a link" && err == nil {
				t.Errorf("%s as %q was taken", name, as)
			}
			if errs.CodeOf(err) == errs.OK && name != "over a link" {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestReadTarHardLinks(t *testing.T) {
	stream := tarOf(t, entry{name: "d", kind: tar.TypeDir}, entry{name: "d/a", kind: tar.TypeReg, data: "same"}, entry{name: "d/b", link: "d/a", kind: tar.TypeLink})
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := readTar(bytes.NewReader(stream), root, "e"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "e/b")); err != nil || string(b) != "same" {
		t.Errorf("%q, %v", b, err)
	}
}

// Blocks of zeros become holes, symlinks keep their times, and nothing comes out
// that runs as its owner.
func TestReadTarKeepsWhatItShould(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	data := string(make([]byte, 8<<20)) + "end"
	copied, err := readTar(bytes.NewReader(tarOf(t, entry{name: "f", kind: tar.TypeReg, data: data})), root, "")
	if err != nil || copied.Bytes != uint64(len(data)) || copied.Entries != 1 {
		t.Fatalf("%+v, %v", copied, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "f"))
	if err != nil || string(b) != data {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	st, err := os.Stat(filepath.Join(dir, "f"))
	if err != nil || st.Sys().(*syscall.Stat_t).Blocks > 64 {
		t.Errorf("%d blocks, %v", st.Sys().(*syscall.Stat_t).Blocks, err)
	}
	if _, err := readTar(bytes.NewReader(tarOf(t, entry{name: "l", link: "f", kind: tar.TypeSymlink})), root, ""); err != nil {
		t.Fatal(err)
	}
	if st, err := root.Lstat("l"); err != nil || runtime.GOOS == "linux" && st.ModTime().Unix() != 0 {
		t.Errorf("the link is of %v, %v", st.ModTime(), err)
	}
	u := unpacker{root: root}
	if err := u.attributes("f", &tar.Header{Mode: 0o7755}); err != nil {
		t.Fatal(err)
	}
	if st, err := root.Lstat("f"); err != nil || st.Mode() != os.ModeSticky|0o755 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

// TestReadTarKeepsWhatIsThereUntilAllHasCome: a copy that breaks off takes
// nothing away.
func TestReadTarKeepsWhatIsThereUntilAllHasCome(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	stream := tarOf(t, entry{name: "f", kind: tar.TypeReg, data: strings.Repeat("new", 1000)})
	if _, err := readTar(bytes.NewReader(stream[:2000]), root, ""); err == nil {
		t.Fatal("it was whole")
	}
	b, err := os.ReadFile(filepath.Join(dir, "f"))
	if names, _ := os.ReadDir(dir); err != nil || string(b) != "precious" || len(names) != 1 {
		t.Errorf("%q, %v, %v", b, err, names)
	}
	if _, err := readTar(bytes.NewReader(stream), root, ""); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || len(b) != 3000 {
		t.Errorf("%q, %v", b, err)
	}
}

func FuzzReadTar(f *testing.F) {
	for _, stream := range hostile(f) {
		f.Add(stream, "")
		f.Add(stream, ".")
	}
	f.Fuzz(func(t *testing.T, stream []byte, name string) {
		if name != "" && name != "." {
			name = "renamed"
		}
		_ = unpackInto(t, stream, name) // what counts is that nothing outside is touched
	})
}

// writing is called with what is written.
type writing func(p []byte) (int, error)

func (w writing) Write(p []byte) (int, error) { return w(p) }

// Who copies a folder in which somebody works hears what was gone when its turn
// came.
func TestWhatGoesMeanwhileIsTold(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var skipped []string
	err := writeTar(writing(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("d/a")) { // the list of names was read by now
			if err := os.Remove(filepath.Join(dir, "c")); err != nil && !errors.Is(err, os.ErrNotExist) {
				return 0, err
			}
		}
		return len(p), nil
	}), dir, "d", func(p string) { skipped = append(skipped, p) })
	if err != nil || len(skipped) != 1 || skipped[0] != filepath.Join(dir, "c") {
		t.Errorf("skipped %q, %v", skipped, err)
	}
}
