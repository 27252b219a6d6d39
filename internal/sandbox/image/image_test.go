//go:build linux

package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/home"
	reader "github.com/erofs/go-erofs"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

var testGuest = func() GuestBinary {
	b := []byte("guest program " + strings.Repeat("g", 10_000))
	return GuestBinary{Bytes: b, Digest: digest.Of(b)}
}()

func newStore(t testing.TB) *Store {
	t.Helper()
	h, err := home.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(h, testGuest)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// onlyImages fails when the images' folder holds anything half made.
func onlyImages(t testing.TB, s *Store, images int) {
	t.Helper()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), hiddenPrefix) {
			t.Errorf("debris: %s", e.Name())
		}
		if e.Name() != sourcesName && e.Name() != namesName && e.Name() != "machine" {
			n++
		}
	}
	if n != images {
		t.Errorf("%d images, want %d", n, images)
	}
}

// listing describes an EROFS image for comparison, without our own additions.
func listing(t testing.TB, img Image) map[string]string {
	t.Helper()
	f, err := os.Open(img.Root.EROFS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	fsys, err := reader.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	err = fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := fs.Lstat(fsys, p)
		if err != nil {
			return err
		}
		st := fi.Sys().(*reader.Stat)
		line := fmt.Sprintf("%o %d:%d", fi.Mode()&0o7777, st.UID, st.GID)
		switch {
		case fi.Mode()&fs.ModeSymlink != 0:
			target, err := fsys.(interface {
				ReadLink(string) (string, error)
			}).ReadLink(p)
			if err != nil {
				return err
			}
			line = "-> " + target
		case fi.Mode().IsRegular():
			b, err := fs.ReadFile(fsys, p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d links %.20q", st.Nlink, b)
		case fi.IsDir():
			line += " dir"
		}
		got[p] = line
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func expect(t *testing.T, got map[string]string, want map[string]string) {
	t.Helper()
	for p, w := range want {
		if got[p] != w {
			t.Errorf("%q is %q, want %q", p, got[p], w)
		}
	}
}

// ours is in every image.
var ours = map[string]string{
	".brood/bin/brood-guest": `755 0:0 1 links "guest program gggggg"`,
	"dev":                    "755 0:0 dir", "dev/shm": "1777 0:0 dir", "tmp": "1777 0:0 dir", "run": "755 0:0 dir",
	"proc": "555 0:0 dir", "sys": "555 0:0 dir",
}

func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFolder(t *testing.T) {
	s := newStore(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"bin/tool": "tool", "etc/passwd": "root", "odd \xff\nname": "odd", "tmp": "a file where a folder must be"})
	must(t, os.Chmod(filepath.Join(dir, "bin/tool"), 0o755|os.ModeSetuid))
	must(t, os.Symlink("../etc/passwd", filepath.Join(dir, "bin/link")))
	must(t, os.Symlink("/nowhere", filepath.Join(dir, "dangling")))
	must(t, os.Link(filepath.Join(dir, "bin/tool"), filepath.Join(dir, "hard")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	must(t, os.Mkdir(filepath.Join(dir, "secret"), 0o700))
	img, err := s.Resolve(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := listing(t, img)
	expect(t, got, ours)
	expect(t, got, map[string]string{
		".": "755 0:0 dir", "bin/tool": `4755 0:0 2 links "tool"`, "hard": `4755 0:0 2 links "tool"`, "bin/link": "-> ../etc/passwd",
		"dangling": "-> /nowhere", "odd \xff\nname": `644 0:0 1 links "odd"`, "secret": "700 0:0 dir", "pipe": "",
	})
	notes := strings.Join(img.Notes, "\n")
	if !strings.Contains(notes, "pipe is a named pipe") || !strings.Contains(notes, "/tmp is a folder") {
		t.Errorf("notes = %q", notes)
	}
	if sum, size := fileDigest(t, img.Root.EROFS); sum != img.Root.Digest || size != img.Size {
		t.Errorf("the image is not named by its digest")
	}
	again, err := s.Resolve(t.Context(), "sha256:"+string(img.Root.Digest), Options{})
	if err != nil || again.Root != img.Root {
		t.Errorf("by digest: %+v, %v", again, err)
	}
	onlyImages(t, s, 1)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fileDigest(t testing.TB, p string) (digest.Digest, int64) {
	t.Helper()
	f, err := os.Open(p)
	must(t, err)
	defer func() { _ = f.Close() }()
	d, n, err := digest.Read(f)
	must(t, err)
	return d, n
}

// settle waits until the folder is old enough to be remembered: time passes
// by importing it.
func settle(t *testing.T, s *Store, ref string) Image {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		img, err := s.Resolve(t.Context(), ref, Options{})
		must(t, err)
		if entries, err := os.ReadDir(filepath.Join(s.dir, sourcesName)); err == nil && len(entries) > 0 {
			return img
		}
	}
	t.Fatal("an unchanged folder was never remembered")
	return Image{}
}

func TestUnchangedFolderIsNotReadAgain(t *testing.T) {
	s := newStore(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "one", "sub/b": "two"})
	first := settle(t, s, dir)
	read := false
	opts := Options{Progress: func(int64, int64) { read = true }}
	again, err := s.Resolve(t.Context(), "dir:"+dir, opts)
	must(t, err)
	if read || again.Root != first.Root {
		t.Errorf("read again: %t, %v and %v", read, again.Root, first.Root)
	}
	// The same size and, put back, the same time: the change time tells.
	fi, err := os.Stat(filepath.Join(dir, "sub/b"))
	must(t, err)
	write(t, dir, map[string]string{"sub/b": "TWO"})
	must(t, os.Chtimes(filepath.Join(dir, "sub/b"), fi.ModTime(), fi.ModTime()))
	changed, err := s.Resolve(t.Context(), dir, opts)
	must(t, err)
	if !read || changed.Root.Digest == first.Root.Digest {
		t.Error("a changed folder was taken for unchanged")
	}
	if got := listing(t, changed)["sub/b"]; got != `644 0:0 1 links "TWO"` {
		t.Errorf("sub/b = %s", got)
	}
}

func TestTwoImportsAtOnceBuildOnce(t *testing.T) {
	s := newStore(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": strings.Repeat("x", 3<<20)})
	settle(t, s, dir)
	must(t, os.RemoveAll(filepath.Join(s.dir, sourcesName)))
	must(t, os.Mkdir(filepath.Join(s.dir, sourcesName), 0o700))
	var mu sync.Mutex
	builds := map[int]bool{}
	for i, err := range life.Each(t.Context(), 8, 8, func(ctx context.Context, i int) error {
		_, err := s.Resolve(ctx, dir, Options{Progress: func(int64, int64) {
			mu.Lock()
			defer mu.Unlock()
			builds[i] = true
		}})
		return err
	}) {
		if err != nil {
			t.Errorf("import %d: %v", i, err)
		}
	}
	if len(builds) != 1 {
		t.Errorf("%d of 8 imports read the folder", len(builds))
	}
	onlyImages(t, s, 1)
}

func TestSameContentSameBytes(t *testing.T) {
	var sums []digest.Digest
	for range 2 {
		s := newStore(t)
		dir := t.TempDir()
		write(t, dir, map[string]string{"b": "2", "a": "1", "c/d": "3"})
		for _, p := range []string{"a", "b", "c/d", "c", "."} {
			must(t, os.Chtimes(filepath.Join(dir, p), time.Unix(1e9, 0), time.Unix(1e9, 0)))
		}
		img, err := s.Resolve(t.Context(), dir, Options{})
		must(t, err)
		sums = append(sums, img.Root.Digest)
	}
	if sums[0] != sums[1] {
		t.Errorf("%s and %s", sums[0], sums[1])
	}
}

func TestBroodsOwnFolderIsLeftOut(t *testing.T) {
	dir := t.TempDir()
	h, err := home.Open(filepath.Join(dir, "me/.brood"))
	must(t, err)
	s, err := Open(h, testGuest)
	must(t, err)
	write(t, dir, map[string]string{"me/.brood/daemon.json": "token", "me/file": "x"})
	img, err := s.Resolve(t.Context(), dir, Options{})
	must(t, err)
	got := listing(t, img)
	if got["me/.brood"] != "" || got["me/file"] == "" {
		t.Errorf("image holds %v", got)
	}
}

func TestCancelLeavesNothing(t *testing.T) {
	s := newStore(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": strings.Repeat("x", 1<<20), "b": strings.Repeat("y", 1<<20)})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Resolve(ctx, dir, Options{Progress: func(int64, int64) { cancel() }})
	if !errs.Is(err, errs.Canceled) {
		t.Errorf("err = %v", err)
	}
	onlyImages(t, s, 0)
}

func TestRefusedRefs(t *testing.T) {
	s := newStore(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"file": "x", "empty.tar": "", "junk.tar": strings.Repeat("junk", 1000), "oci/oci-layout": "{}", "oci/index.json": "{}"})
	for ref, want := range map[string]errs.Code{
		"ubuntu":                            errs.Unsupported,
		"ghcr.io/some/image:tag":            errs.Unsupported,
		"oci:/x":                            errs.Unsupported,
		filepath.Join(dir, "oci"):           errs.Unsupported,
		"./relative":                        errs.InvalidArgument,
		"dir:relative":                      errs.InvalidArgument,
		"x.tar":                             errs.InvalidArgument,
		"sha256:abc":                        errs.InvalidArgument,
		"sha256:" + strings.Repeat("0", 64): errs.NotFound,
		filepath.Join(dir, "none"):          errs.NotFound,
		filepath.Join(dir, "none.tar"):      errs.NotFound,
		filepath.Join(dir, "file"):          errs.InvalidArgument,
		"tar:" + dir:                        errs.InvalidArgument,
		filepath.Join(dir, "empty.tar"):     errs.InvalidArgument,
		filepath.Join(dir, "junk.tar"):      errs.InvalidArgument,
	} {
		if _, err := s.Resolve(t.Context(), ref, Options{}); errs.CodeOf(err) != want {
			t.Errorf("%s: %v: %v", ref, errs.CodeOf(err), err)
		}
	}
	onlyImages(t, s, 0)
}

func TestRemove(t *testing.T) {
	s := newStore(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "x"})
	img, err := s.Resolve(t.Context(), dir, Options{})
	must(t, err)
	err = s.Remove(img.Root.Digest, func(digest.Digest) string { return "checkpoint base" })
	if !errs.Is(err, errs.FailedPrecondition) || !strings.Contains(err.Error(), "checkpoint base") {
		t.Errorf("one in use: %v", err)
	}
	nobody := func(digest.Digest) string { return "" }
	must(t, s.Remove(img.Root.Digest, nobody))
	if err := s.Remove(img.Root.Digest, nobody); !errs.Is(err, errs.NotFound) {
		t.Errorf("removed twice: %v", err)
	}
	if _, err := s.Resolve(t.Context(), dir, Options{}); err != nil {
		t.Errorf("imported again: %v", err)
	}
	onlyImages(t, s, 1)
}

func TestOpenRemovesDebris(t *testing.T) {
	s := newStore(t)
	write(t, s.dir, map[string]string{".new-1/root.erofs": "half", ".gone-2/root/etc/passwd": "x"})
	if _, err := Open(s.home, testGuest); err != nil {
		t.Fatal(err)
	}
	onlyImages(t, s, 0)
}

// entry is one entry of a tar under test.
type entry struct {
	h    tar.Header
	body string
}

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		e.h.Size = int64(len(e.body))
		must(t, w.WriteHeader(&e.h))
		_, err := io.WriteString(w, e.body)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func file(name, body string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Uid: 7, Gid: 8}, body}
}

func link(kind byte, name, target string) entry {
	return entry{tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o777}, ""}
}

func TestTar(t *testing.T) {
	s := newStore(t)
	plain := tarOf(t,
		entry{tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o751}, ""},
		entry{tar.Header{Typeflag: tar.TypeDir, Name: "usr/bin/", Mode: 0o755, Uid: 5}, ""},
		link(tar.TypeSymlink, "bin", "usr/bin"),
		file("bin/through-link", "followed"),
		link(tar.TypeSymlink, "abs", "/usr"), file("abs/lib/x", "absolute"),
		link(tar.TypeSymlink, "up", "../../../usr"), file("up/y", "stays inside"),
		file("/usr/bin/tool", "old"), file("usr/bin/tool", "new"),
		link(tar.TypeLink, "hard", "./usr/bin/tool"),
		entry{tar.Header{Typeflag: tar.TypeChar, Name: "dev/null", Mode: 0o666, Devmajor: 1, Devminor: 3}, ""},
		entry{tar.Header{Typeflag: tar.TypeReg, Name: "cap", Mode: 0o4755, Uid: 1 << 30, Gid: 3, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "x"}}, "c"},
		file(strings.Repeat("long/", 50)+"name", "deep"),
		file("gone/inner", "x"), file("gone", "a file now"),
		link(tar.TypeSymlink, "run", "var/run"),
	)
	var gz, zs bytes.Buffer
	zw := gzip.NewWriter(&gz)
	_, err := zw.Write(plain)
	must(t, errors.Join(err, zw.Close()))
	sw, err := zstd.NewWriter(&zs)
	must(t, err)
	_, err = sw.Write(plain)
	must(t, errors.Join(err, sw.Close()))
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.tar": string(plain), "a.tgz": gz.String(), "a.tar.zst": zs.String()})
	var sums []digest.Digest
	for _, name := range []string{"a.tar", "a.tgz", "a.tar.zst"} {
		img, err := s.Resolve(t.Context(), filepath.Join(dir, name), Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		sums = append(sums, img.Root.Digest)
		if name != "a.tar" {
			continue
		}
		got := listing(t, img)
		expect(t, got, map[string]string{
			".": "751 0:0 dir", "bin": "-> usr/bin", "usr/bin": "755 5:0 dir", "usr/bin/through-link": `644 7:8 1 links "followed"`,
			"usr/lib/x": `644 7:8 1 links "absolute"`, "usr/y": `644 7:8 1 links "stays inside"`,
			"usr/bin/tool": `644 7:8 2 links "new"`, "hard": `644 7:8 2 links "new"`, "dev": "755 0:0 dir", "dev/null": "",
			"cap": `4755 1073741824:3 1 links "c"`, strings.Repeat("long/", 50) + "name": `644 7:8 1 links "deep"`,
			"gone": `644 7:8 1 links "a file now"`, "gone/inner": "",
		})
		expect(t, got, ours)
		notes := strings.Join(img.Notes, "\n")
		for _, want := range []string{"dev/null is a device", "security.capability", "/run is a folder"} {
			if !strings.Contains(notes, want) {
				t.Errorf("notes lack %q: %s", want, notes)
			}
		}
	}
	if sums[0] != sums[1] || sums[1] != sums[2] {
		t.Errorf("packing changed the image: %v", sums)
	}
}

func TestBadTars(t *testing.T) {
	s := newStore(t)
	dir := t.TempDir()
	for name, b := range map[string][]byte{
		"up.tar":         tarOf(t, file("../../etc/passwd", "x")),
		"below-file.tar": tarOf(t, file("a", "x"), file("a/b", "y")),
		"loop.tar":       tarOf(t, link(tar.TypeSymlink, "l", "l"), file("l/x", "y")),
		"no-target.tar":  tarOf(t, link(tar.TypeLink, "h", "nowhere")),
		"root-file.tar":  tarOf(t, file(".", "x")),
		"name.tar":       tarOf(t, file(strings.Repeat("n", 256), "x")),
	} {
		write(t, dir, map[string]string{name: string(b)})
		if _, err := s.Resolve(t.Context(), filepath.Join(dir, name), Options{}); !errs.Is(err, errs.InvalidArgument) {
			t.Errorf("%s: %v: %v", name, errs.CodeOf(err), err)
		}
	}
	// What is cut short is no smaller image, wherever the cut is.
	whole := tarOf(t, file("a", strings.Repeat("x", 10_000)), file("b", "y"))
	for _, n := range []int{6000, 512 + 10_240, len(whole) - 1024} {
		name := fmt.Sprintf("cut-%d.tar", n)
		write(t, dir, map[string]string{name: string(whole[:n])})
		if _, err := s.Resolve(t.Context(), filepath.Join(dir, name), Options{}); !errs.Is(err, errs.DataLoss) {
			t.Errorf("%s: %v: %v", name, errs.CodeOf(err), err)
		}
	}
	write(t, dir, map[string]string{"saved.tar": string(tarOf(t, file("manifest.json", "[]"), file("repositories", "{}")))})
	if _, err := s.Resolve(t.Context(), filepath.Join(dir, "saved.tar"), Options{}); !errs.Is(err, errs.Unsupported) {
		t.Errorf("docker save: %v", err)
	}
	onlyImages(t, s, 0)
}
