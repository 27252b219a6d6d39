package pack

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"brood/internal/base/content"
	"brood/internal/base/errs"
)

func open(t *testing.T, dir string) *os.Root {
	t.Helper()
	r, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// stream makes a tar stream of headers; files contain their own name.
func stream(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, h.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func file(name string, mode int64) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, ModTime: time.Unix(1e9, 0)}
}

func TestUnpackReplacesFilesAndMergesFolders(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"d/old": "old", "d/f": "before", "target": "safe"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../target", filepath.Join(dir, "d/link")); err != nil {
		t.Fatal(err)
	}
	in := stream(t,
		tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o777},
		file("d/f", 0o4755), file("d/link", 0o644), file("deep/er/g", 0o600),
		tar.Header{Name: "ro/", Typeflag: tar.TypeDir, Mode: 0o555, ModTime: time.Unix(2e9, 0)},
		file("ro/in", 0o444),
		tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: "d/f"},
		tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: "d/f"},
	)
	stats, err := Unpack(bytes.NewReader(in), open(t, dir), Options{})
	if err != nil || stats.Entries != 8 {
		t.Fatalf("%+v, %v", stats, err)
	}
	for name, want := range map[string]string{"d/old": "old", "d/f": "d/f", "d/link": "d/link", "target": "safe", "deep/er/g": "deep/er/g", "ro/in": "ro/in", "hard": "d/f"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != want {
			t.Errorf("%s has %q, %v", name, got, err)
		}
	}
	mode := func(name string) os.FileMode {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode()
	}
	if m := mode("d/f"); m != 0o755 {
		t.Errorf("special bits are kept though nobody asked: %v", m)
	}
	if m := mode("d"); m.Perm() != 0o700 {
		t.Errorf("a folder that was there has mode %v now", m)
	}
	if m := mode("ro"); m.Perm() != 0o555 {
		t.Errorf("ro has mode %v", m)
	}
	if info, err := os.Stat(filepath.Join(dir, "ro")); err != nil || info.ModTime().Unix() != 2e9 {
		t.Errorf("ro has time %v, %v", info.ModTime(), err)
	}
	if _, err := Unpack(bytes.NewReader(stream(t, file("s", 0o7711))), open(t, dir), Options{SpecialBits: true}); err != nil {
		t.Fatal(err)
	}
	if m := mode("s"); m != 0o711|os.ModeSetuid|os.ModeSetgid|os.ModeSticky {
		t.Errorf("special bits: %v", m)
	}
	if err := os.Chmod(filepath.Join(dir, "ro"), 0o755); err != nil {
		t.Fatal(err)
	}
	noTemp(t, dir)
}

// noTemp checks that no temporary file is left.
func noTemp(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), ".brood-") {
			t.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestUnpackFailuresLeaveNoHalfFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	whole := stream(t, file("f", 0o644))
	for _, tt := range []struct {
		name string
		in   io.Reader
		code errs.Code
	}{
		{"cut in the content", bytes.NewReader(whole[:512+1][:512]), errs.DataLoss},
		{"cut in a header", bytes.NewReader(whole[:100]), errs.DataLoss},
		{"nothing", bytes.NewReader(nil), errs.DataLoss},
		{"noise", bytes.NewReader(bytes.Repeat([]byte("noise"), 300)), errs.DataLoss},
		{"failing", io.MultiReader(bytes.NewReader(whole[:512]), fails{errs.New(errs.Canceled, "stop")}), errs.Canceled},
	} {
		if _, err := Unpack(tt.in, open(t, dir), Options{}); !errs.Is(err, tt.code) {
			t.Errorf("%s: %v (%v)", tt.name, err, errs.CodeOf(err))
		}
		if got, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(got) != "before" {
			t.Errorf("%s: f has %q, %v", tt.name, got, err)
		}
	}
	noTemp(t, dir)
}

// A stream that is cut behind an entry is not taken for a smaller one.
func TestUnpackRefusesAStreamCutBetweenEntries(t *testing.T) {
	whole := stream(t, file("a", 0o644), file("b", 0o644))
	for _, n := range []int{1024, 2048} {
		if _, err := Unpack(bytes.NewReader(whole[:n]), open(t, t.TempDir()), Options{}); !errs.Is(err, errs.DataLoss) || !strings.Contains(err.Error(), "the tar stream is cut short") {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
}

// What is refused is said with a name that can be read, and as what it is.
func TestUnpackRefusals(t *testing.T) {
	long := func(n int) string { return strings.Repeat("deep/", n/5-1) + strings.Repeat("x", 5+n%5) }
	for name, tt := range map[string]struct {
		in   []byte
		want string
	}{
		"too long a name":     {stream(t, file(long(4100), 0o644)), "is too long: it has 4100 bytes, and at most 4096 are taken"},
		"too long a target":   {stream(t, tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: long(5000)}), "is too long"},
		"too long a part":     {stream(t, file(strings.Repeat("n", 3000), 0o644)), "file name too long"},
		"too long a folder":   {stream(t, file("d/"+strings.Repeat("n", 3000)+"/x", 0o644)), "file name too long"},
		"a name outside":      {stream(t, file("../x", 0o644)), "only names below the target are unpacked"},
		"through a link":      {stream(t, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/"}, file("l/x", 0o644)), "a symlink on the way leads out of the target"},
		"a link through one":  {stream(t, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/"}, tar.Header{Name: "l/m", Typeflag: tar.TypeSymlink, Linkname: "x"}), "a symlink on the way leads out of the target"},
		"a folder behind one": {stream(t, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/"}, tar.Header{Name: "l/d/", Typeflag: tar.TypeDir, Mode: 0o755}), "a symlink on the way leads out of the target"},
	} {
		_, err := Unpack(bytes.NewReader(tt.in), open(t, t.TempDir()), Options{})
		if !errs.Is(err, errs.InvalidArgument) || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 700 {
			t.Errorf("%s: %v: %v", name, errs.CodeOf(err), err)
		}
	}
}

type fails struct{ err error }

func (f fails) Read([]byte) (int, error) { return 0, f.err }

// Files of kernels are read to their end, whatever size they say.
func TestPackReadsPseudoFiles(t *testing.T) {
	want, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Skip("SKIPPED: there is no /proc here")
	}
	var b bytes.Buffer
	if _, err := Link(&b, "/proc/version", "v"); err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(&b)
	if h, err := r.Next(); err != nil || h.Size != int64(len(want)) {
		t.Fatalf("%+v, %v", h, err)
	}
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestPackRefusesADeviceAlone(t *testing.T) {
	if _, err := Link(io.Discard, "/dev/zero", "z"); !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "is a device") {
		t.Errorf("%v", err)
	}
}

// A file of zeros goes through and takes no room; a symlink keeps its time.
func TestUnpackWritesHolesAndTimesOfLinks(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(from, "f"), nil, 0o600), os.Truncate(filepath.Join(from, "f"), 8<<20), os.Symlink("f", filepath.Join(from, "l"))); err != nil {
		t.Fatal(err)
	}
	old := time.Unix(1_000_000_000, 0)
	if root, err := os.OpenRoot(from); err != nil || content.LinkTime(root, "l", old) != nil || root.Close() != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := Pack(&b, from, "."); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := Unpack(&b, root, Options{}); err != nil {
		t.Fatal(err)
	}
	st, err := root.Stat("f")
	if err != nil || st.Size() != 8<<20 || st.Sys().(*syscall.Stat_t).Blocks > 64 {
		t.Errorf("%+v, %v", st, err)
	}
	if st, err := root.Lstat("l"); err != nil || runtime.GOOS == "linux" && !st.ModTime().Equal(old) {
		t.Errorf("the link is of %v, %v", st.ModTime(), err)
	}
}

func TestPackSkipsWhatIsNoFileAndKeepsLinks(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", filepath.Join(dir, "c")); err != nil {
		t.Fatal(err)
	}
	if err := mkfifo(filepath.Join(dir, "fifo")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "..", "top")); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	var b bytes.Buffer
	// The path itself may be a link; what is below is not followed.
	stats, err := Pack(&b, filepath.Join(dir, "..", "top"), "n")
	if err != nil || stats.Skipped != 1 || !slices.Equal(stats.Names, []string{"n/fifo"}) || stats.Entries != 4 || stats.Bytes != 1 {
		t.Fatalf("%+v, %v", stats, err)
	}
	kinds := map[string]byte{}
	r := tar.NewReader(&b)
	for {
		h, err := r.Next()
		if err != nil {
			break
		}
		kinds[h.Name] = h.Typeflag
	}
	if kinds["n/"] != tar.TypeDir || kinds["n/a"] != tar.TypeReg || kinds["n/b"] != tar.TypeLink || kinds["n/c"] != tar.TypeSymlink || len(kinds) != 4 {
		t.Fatalf("%q", kinds)
	}
	if _, err := Pack(io.Discard, filepath.Join(dir, "none"), "n"); !errs.Is(err, errs.NotFound) {
		t.Fatalf("nothing there: %v", err)
	}
	b.Reset()
	if _, err := Link(&b, filepath.Join(dir, "c"), "n"); err != nil {
		t.Fatal(err)
	}
	if h, err := tar.NewReader(&b).Next(); err != nil || h.Typeflag != tar.TypeSymlink || h.Linkname != "a" {
		t.Fatalf("%+v, %v", h, err)
	}
}

// Devices are neither made nor replaced: what is named by a stream and has no
// content is left out as Pack does, and nothing takes the place of one.
func TestUnpackLeavesDevicesAlone(t *testing.T) {
	dir := t.TempDir()
	in := stream(t, file("a", 0o644), tar.Header{Name: "fifo", Typeflag: tar.TypeFifo, Mode: 0o600}, tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}, file("z", 0o644))
	stats, err := Unpack(bytes.NewReader(in), open(t, dir), Options{})
	if err != nil || stats.Entries != 2 || stats.Skipped != 2 || !slices.Equal(stats.Names, []string{"fifo", "null"}) {
		t.Errorf("%+v, %v", stats, err)
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pipe", "d/pipe"} {
		if err := mkfifo(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		for _, h := range []tar.Header{file(name, 0o644), {Name: name, Typeflag: tar.TypeSymlink, Linkname: "a"}, {Name: name, Typeflag: tar.TypeLink, Linkname: "a"}} {
			if _, err := Unpack(bytes.NewReader(stream(t, h)), open(t, dir), Options{}); !errs.Is(err, errs.FailedPrecondition) {
				t.Errorf("%s, type %q: %v", name, h.Typeflag, err)
			}
		}
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode().Type() != os.ModeNamedPipe {
			t.Errorf("%s is %v, %v", name, info, err)
		}
	}
	noTemp(t, dir)
}

// A file goes where a link leads when the file comes, whatever it led to before.
func TestUnpackFollowsALinkThatIsReplaced(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"real", "other"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to string) tar.Header { return tar.Header{Name: "m", Typeflag: tar.TypeSymlink, Linkname: to} }
	in := stream(t, link("real"), file("m/a", 0o644), link("other"), file("m/b", 0o644))
	if _, err := Unpack(bytes.NewReader(in), open(t, dir), Options{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"real/a", "other/b"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// A stream of a few hundred bytes must not become a file of a terabyte.
func TestUnpackRefusesSparseFiles(t *testing.T) {
	in := stream(t, tar.Header{
		Name: "bomb", Typeflag: tar.TypeReg, Mode: 0o644, Format: tar.FormatPAX,
		PAXRecords: map[string]string{"ABC.sparse.major": "0", "ABC.sparse.minor": "1", "ABC.sparse.numblocks": "1", "ABC.sparse.map": "1099511627776,0", "ABC.sparse.size": "1099511627776"},
	})
	// The writer does not write such records itself.
	in = bytes.ReplaceAll(in, []byte("ABC.sparse"), []byte("GNU.sparse"))
	dir := t.TempDir()
	if _, err := Unpack(bytes.NewReader(in), open(t, dir), Options{}); !errs.Is(err, errs.Unsupported) {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Fatalf("%v, %v", entries, err)
	}
}

func FuzzUnpack(f *testing.F) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{
		{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "../../out"},
		{Name: "d/l/x", Typeflag: tar.TypeReg, Mode: 0o644},
		{Name: "../out/victim", Typeflag: tar.TypeReg},
	} {
		if err := w.WriteHeader(&h); err != nil {
			f.Fatal(err)
		}
	}
	_ = w.Close()
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		base := t.TempDir()
		inside, out := filepath.Join(base, "in"), filepath.Join(base, "out")
		for _, dir := range []string{inside, out} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(out, "victim"), []byte("safe"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = Unpack(bytes.NewReader(in), open(t, inside), Options{SpecialBits: true})
		entries, err := os.ReadDir(base)
		if err != nil || len(entries) != 2 {
			t.Fatalf("beside the root there is %v, %v", entries, err)
		}
		entries, err = os.ReadDir(out)
		if err != nil || len(entries) != 1 {
			t.Fatalf("outside there is %v, %v", entries, err)
		}
		if got, err := os.ReadFile(filepath.Join(out, "victim")); err != nil || string(got) != "safe" {
			t.Fatalf("outside was changed: %q, %v", got, err)
		}
		// Whatever modes were unpacked, the test's folder can be removed.
		_ = filepath.WalkDir(inside, func(path string, d os.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(path, 0o700)
			}
			return nil
		})
	})
}

// watcher sees what is written.
type watcher func(b []byte)

func (w watcher) Write(b []byte) (int, error) { w(b); return len(b), nil }

// TestPackWhileProgramsGoOn: what goes while a folder is copied is not there,
// and is no reason to copy nothing.
func TestPackWhileProgramsGoOn(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "d/x", "e"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("content of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(dir, "b"), filepath.Join(dir, "f")); err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	stats, err := Pack(watcher(func(b []byte) {
		stream.Write(b)
		if bytes.Contains(b, []byte("content of a")) {
			for _, name := range []string{"b", "d"} {
				if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
					t.Error(err)
				}
			}
		}
	}), dir, ".")
	if err != nil || stats.Entries != 4 {
		t.Fatalf("%+v, %v", stats, err)
	}
	to := t.TempDir()
	root, err := os.OpenRoot(to)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := Unpack(&stream, root, Options{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a": "content of a", "e": "content of e", "f": "content of b"} {
		if b, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}
