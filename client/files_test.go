package client_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"brood/client"
	"brood/internal/base/errs"
)

// tree makes a folder with what cp must carry over.
func tree(t *testing.T, dir string) {
	t.Helper()
	when := time.Date(2020, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, "sub/empty"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "big"), bytes.Repeat([]byte("0123456789"), 300_000), 0o640))
	must(os.WriteFile(filepath.Join(dir, "sub/run"), []byte("#!/bin/sh\n"), 0o755))
	must(os.Symlink("/etc/passwd", filepath.Join(dir, "absolute")))
	must(os.Symlink("../big", filepath.Join(dir, "sub/up")))
	must(os.Chmod(filepath.Join(dir, "sub"), 0o711))
	must(os.Chtimes(filepath.Join(dir, "big"), when, when))
	must(os.Chtimes(filepath.Join(dir, "sub/run"), when, when))
}

// same compares two trees: names, kinds, modes, contents, times of files.
func same(t *testing.T, a, b string) {
	t.Helper()
	list := func(root string) map[string]string {
		all := map[string]string{}
		err := filepath.Walk(root, func(p string, st os.FileInfo, err error) error {
			if err != nil {
				return err
			}
			rel, _ := filepath.Rel(root, p)
			switch {
			case st.Mode()&os.ModeSymlink != 0:
				all[rel], err = os.Readlink(p)
			case st.IsDir():
				all[rel] = "folder"
			default:
				var data []byte
				data, err = os.ReadFile(p)
				all[rel] = st.Mode().String() + st.ModTime().UTC().String() + string(data)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	x, y := list(a), list(b)
	for p, v := range x {
		if y[p] != v {
			t.Errorf("%s: %.80q is %.80q", p, v, y[p])
		}
	}
	if len(x) != len(y) || len(x) < 2 {
		t.Errorf("%d entries became %d", len(x), len(y))
	}
}

func TestCopyBothWays(t *testing.T) {
	s := serve(t)
	c := s.dial(t)
	local := filepath.Join(t.TempDir(), "src")
	tree(t, local)
	inside := func(p string) string { return filepath.Join(s.files.root, p) }
	if err := os.MkdirAll(inside("data"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct{ from, to, lands string }{
		{local, "/data", "data/src"},         // into a folder
		{local, "/data/", "data/src"},        //
		{local, "/data/other", "data/other"}, // under another name
		{local + "/.", "/data/src", "data/src"},
	} {
		if err := os.RemoveAll(inside(k.lands)); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(k.from, "/.") {
			if err := os.Mkdir(inside(k.lands), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		done, err := c.CopyTo(t.Context(), "a", k.from, k.to)
		if err != nil || done.Entries != 7 {
			t.Fatalf("%v: %v, %v", k, done, err)
		}
		same(t, local, inside(k.lands))
	}
	back := t.TempDir()
	if _, err := c.CopyFrom(t.Context(), "a", "/data/src", back); err != nil {
		t.Fatal(err)
	}
	same(t, local, filepath.Join(back, "src"))
	if _, err := c.CopyFrom(t.Context(), "a", "/data/src", filepath.Join(back, "renamed")); err != nil {
		t.Fatal(err)
	}
	same(t, local, filepath.Join(back, "renamed"))
	flat := t.TempDir()
	if _, err := c.CopyFrom(t.Context(), "a", "/data/src/.", flat); err != nil {
		t.Fatal(err)
	}
	same(t, local, flat)
	// A file over a file.
	if _, err := c.CopyFrom(t.Context(), "a", "/data/src/sub/run", filepath.Join(flat, "big")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(flat, "big")); err != nil || string(b) != "#!/bin/sh\n" {
		t.Errorf("%q, %v", b, err)
	}
	if st, err := os.Stat(filepath.Join(flat, "big")); err != nil || st.Mode() != 0o755 {
		t.Errorf("%v, %v: setuid must be dropped", st.Mode(), err)
	}
}

func TestCopyRefuses(t *testing.T) {
	s := serve(t)
	c := s.dial(t)
	local := t.TempDir()
	file := filepath.Join(local, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.files.root, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	to := func(from, remote string) error {
		_, err := c.CopyTo(t.Context(), "a", from, remote)
		return err
	}
	from := func(remote, local string) error {
		_, err := c.CopyFrom(t.Context(), "a", remote, local)
		return err
	}
	want(t, to(filepath.Join(local, "none"), "/"), errs.NotFound, "none")
	want(t, to(file, "f"), errs.InvalidArgument, "begin the path inside with /")
	want(t, to(file, "/no/"), errs.NotFound, "make it first")
	want(t, to(local, "/f"), errs.InvalidArgument, "is a folder")
	want(t, from("/none", local), errs.NotFound, "none")
	want(t, from("/f", filepath.Join(local, "no/")+"/"), errs.NotFound, "make it first")
	want(t, from("/f", filepath.Join(local, "no/x")), errs.NotFound, "make it first")

	if err := syscall.Mkfifo(filepath.Join(local, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, to(filepath.Join(local, "pipe"), "/"), errs.Unsupported, "is a pipe")
	want(t, to("/dev/null", "/"), errs.Unsupported, "is a device")
	s.files.full = true
	want(t, to(file, "/"), errs.InsufficientDisk, "full")
	if s.files.aborted != 1 {
		t.Errorf("%d copies were given up, want 1", s.files.aborted)
	}
}

// What has no content is left out and told; what does not say its size is read
// to its end.
func TestCopyToSkipsAndReads(t *testing.T) {
	s := serve(t)
	c := s.dial(t)
	local := filepath.Join(t.TempDir(), "d")
	if err := errors.Join(os.Mkdir(local, 0o700), os.WriteFile(filepath.Join(local, "f"), []byte("x"), 0o600), syscall.Mkfifo(filepath.Join(local, "pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	done, err := c.CopyTo(t.Context(), "a", local, "/")
	if err != nil || done.Entries != 2 || done.SkippedTotal != 1 || len(done.Skipped) != 1 || done.Skipped[0] != filepath.Join(local, "pipe") {
		t.Errorf("%+v, %v", done, err)
	}
	if b, err := os.ReadFile(filepath.Join(s.files.root, "d/f")); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	want, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Skip("SKIPPED: there is no /proc here")
	}
	if _, err := c.CopyTo(t.Context(), "a", "/proc/version", "/version"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(s.files.root, "version")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestGetTarIsTar(t *testing.T) {
	s := serve(t)
	c := s.dial(t)
	tree(t, filepath.Join(s.files.root, "d"))
	r := c.GetTar(t.Context(), "a", "/d", false)
	defer r.Close()
	tr := tar.NewReader(r)
	n := 0
	for {
		if _, err := tr.Next(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 7 {
		t.Errorf("%d entries", n)
	}
}

var _ = client.Options{}
