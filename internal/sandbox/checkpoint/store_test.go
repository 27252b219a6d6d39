package checkpoint_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
	"brood/internal/sandbox"
	"brood/internal/sandbox/checkpoint"
)

func open(t testing.TB, h *home.Home) *checkpoint.Store {
	t.Helper()
	s, err := checkpoint.Open(h)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newHome(t testing.TB) *home.Home {
	t.Helper()
	h, err := home.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func facts() checkpoint.Facts {
	return checkpoint.Facts{
		Driver: "fake", Runtime: "r1", Capture: checkpoint.Memory,
		Needs: checkpoint.Needs{Arch: "amd64", CPU: []string{"sse2", "avx"}, Kernel: "6.1"},
		Shape: sandbox.Shape{CPUs: 2, MemoryMiB: 512},
		Base:  checkpoint.Base{Kind: checkpoint.EROFS, Digest: digest.Of([]byte("base"))}, MemoryUsed: 12345,
		Guest: []byte(`{"magic":"secret"}`),
	}
}

// write fills a draft with files of known content.
func write(d *checkpoint.Draft, mark string) error {
	for name, size := range map[string]int{"pages.img": 700_000, "sub/state": 5000} {
		p := filepath.Join(d.Dir(), name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(p, []byte(strings.Repeat(mark+"\n", size/(len(mark)+1))), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func make1(t testing.TB, s *checkpoint.Store, name id.Name, mark string, o checkpoint.Options) checkpoint.Checkpoint {
	t.Helper()
	d, err := s.Begin(name, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := write(d, mark); err != nil {
		t.Fatal(err)
	}
	c, err := d.Publish(t.Context(), facts())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPublishedAndReadAgain(t *testing.T) {
	h := newHome(t)
	s := open(t, h)
	made := make1(t, s, "my-name", "one", checkpoint.Options{Temporary: "b-1", Source: "src"})
	for _, s := range []*checkpoint.Store{s, open(t, h)} {
		c, err := s.Get("my-name")
		if err != nil {
			t.Fatal(err)
		}
		if c.Digest != made.Digest || c.Record.Temporary != "b-1" || c.Record.Source != "src" || c.Record.Created.IsZero() ||
			c.Manifest.Shape.MemoryMiB != 512 || len(c.Manifest.Files) != 3 || c.Manifest.Needs.CPU[0] != "avx" {
			t.Errorf("read %+v", c)
		}
		b, err := os.ReadFile(c.GuestFile())
		if err != nil || string(b) != `{"magic":"secret"}` {
			t.Errorf("guest's facts: %q, %v", b, err)
		}
		if st, err := os.Stat(filepath.Join(c.Dir, "pages.img")); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("files must be private: %v, %v", st.Mode(), err)
		}
		if err := s.Verify(t.Context(), "my-name", nil); err != nil {
			t.Error(err)
		}
		if c, err := s.Lookup("sha256:" + string(made.Digest[:9])); err != nil || c.Name != "my-name" {
			t.Errorf("Lookup = %v, %v", c.Name, err)
		}
	}
	raw, err := os.ReadFile(filepath.Join(h.Checkpoints(), "my-name", "manifest.json"))
	if err != nil || digest.Of(raw) != made.Digest {
		t.Errorf("the digest is not that of the manifest's bytes: %v", err)
	}
	for _, leak := range []string{"secret", h.Dir(), "my-name", "src"} {
		if strings.Contains(string(raw), leak) {
			t.Errorf("the manifest holds %q", leak)
		}
	}
}

func TestSameContentSameDigest(t *testing.T) {
	s := open(t, newHome(t))
	a := make1(t, s, "a", "same", checkpoint.Options{})
	b := make1(t, s, "b", "same", checkpoint.Options{Copy: true})
	c := make1(t, s, "c", "other", checkpoint.Options{})
	if a.Digest != b.Digest || a.Digest == c.Digest {
		t.Errorf("digests %s %s %s", a.Digest.Short(), b.Digest.Short(), c.Digest.Short())
	}
	if got, err := s.ByDigest(b.Digest); err != nil || got.Name != "a" {
		t.Errorf("ByDigest = %s, %v", got.Name, err)
	}
}

func TestNamesAreTakenOnce(t *testing.T) {
	s := open(t, newHome(t))
	d, err := s.Begin("base", checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Begin("base", checkpoint.Options{Replace: true}); !errs.Is(err, errs.AlreadyExists) || !strings.Contains(err.Error(), "being captured") {
		t.Errorf("second capture of a name: %v", err)
	}
	if err := write(d, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Publish(t.Context(), facts()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Begin("base", checkpoint.Options{}); !errs.Is(err, errs.AlreadyExists) || strings.Contains(err.Error(), "being captured") {
		t.Errorf("a taken name: %v", err)
	}
	for _, bad := range []id.Name{"", "../x", ".x", "A", "a/b"} {
		if _, err := s.Begin(bad, checkpoint.Options{}); !errs.Is(err, errs.InvalidArgument) {
			t.Errorf("name %q: %v", bad, err)
		}
	}
	if _, err := d.Publish(t.Context(), facts()); !errs.Is(err, errs.FailedPrecondition) {
		t.Errorf("published twice: %v", err)
	}
}

func TestDiscardFreesTheNameAndTheDisk(t *testing.T) {
	h := newHome(t)
	s := open(t, h)
	for range 2 {
		d, err := s.Begin("base", checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := write(d, "x"); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Discard(), d.Discard()); err != nil {
			t.Fatal(err)
		}
	}
	onlyThese(t, h)
}

// onlyThese fails when the store's folder holds anything but names.
func onlyThese(t testing.TB, h *home.Home, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(h.Checkpoints())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if fmt.Sprint(got) != fmt.Sprint(names) {
		t.Errorf("the store's folder holds %v, want %v", got, names)
	}
}

func TestReplaceSwapsAndDeletesTheOldOne(t *testing.T) {
	h := newHome(t)
	s := open(t, h)
	old := make1(t, s, "base", "old", checkpoint.Options{})
	fresh := make1(t, s, "base", "new", checkpoint.Options{Replace: true})
	if c, err := s.Get("base"); err != nil || c.Digest != fresh.Digest || c.Digest == old.Digest {
		t.Errorf("Get = %s, %v", c.Digest, err)
	}
	if err := s.Verify(t.Context(), "base", nil); err != nil {
		t.Error(err)
	}
	make1(t, s, "free", "x", checkpoint.Options{Replace: true})
	onlyThese(t, h, "base", "free")
}

func TestPinsHoldAcrossOpen(t *testing.T) {
	h := newHome(t)
	s := open(t, h)
	make1(t, s, "base", "x", checkpoint.Options{})
	if err := s.Pin("base"); err != nil {
		t.Fatal(err)
	}
	s = open(t, h)
	if err := s.Delete("base"); !errs.Is(err, errs.FailedPrecondition) {
		t.Errorf("pinned one deleted: %v", err)
	}
	if _, err := s.Begin("base", checkpoint.Options{Replace: true}); !errs.Is(err, errs.FailedPrecondition) {
		t.Errorf("pinned one replaced: %v", err)
	}
	if err := errors.Join(s.Unpin("base"), s.Delete("base")); err != nil {
		t.Error(err)
	}
	if _, err := s.Get("base"); !errs.Is(err, errs.NotFound) {
		t.Errorf("Get after Delete: %v", err)
	}
	if err := s.Delete("base"); !errs.Is(err, errs.NotFound) {
		t.Errorf("Delete of nothing: %v", err)
	}
	onlyThese(t, h)
}

func TestRename(t *testing.T) {
	h := newHome(t)
	s := open(t, h)
	a := make1(t, s, "a", "x", checkpoint.Options{})
	make1(t, s, "b", "y", checkpoint.Options{})
	if err := s.Rename("a", "b"); !errs.Is(err, errs.AlreadyExists) {
		t.Errorf("renamed onto another: %v", err)
	}
	if err := s.Rename("none", "c"); !errs.Is(err, errs.NotFound) {
		t.Errorf("renamed nothing: %v", err)
	}
	if err := s.Rename("a", "c"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*checkpoint.Store{s, open(t, h)} {
		c, err := s.Get("c")
		if err != nil || c.Digest != a.Digest {
			t.Errorf("Get(c) = %v, %v", c.Digest, err)
		}
		if _, err := os.Stat(filepath.Join(c.Dir, "pages.img")); err != nil {
			t.Error(err)
		}
		if _, err := s.Get("a"); !errs.Is(err, errs.NotFound) {
			t.Errorf("the old name: %v", err)
		}
	}
}

func TestTouchKeepsTheLatestUse(t *testing.T) {
	h := newHome(t)
	s := open(t, h)
	made := make1(t, s, "a", "x", checkpoint.Options{})
	later := made.Record.Used.Add(time.Hour)
	if err := errors.Join(s.Touch("a", later), s.Touch("a", later.Add(-time.Minute))); err != nil {
		t.Fatal(err)
	}
	c, err := open(t, h).Get("a")
	if err != nil || !c.Record.Used.Equal(later) {
		t.Errorf("used = %v, %v", c.Record.Used, err)
	}
}

func TestUnfinishedFilesAreRefused(t *testing.T) {
	h := newHome(t)
	s := open(t, h)
	cases := map[string]struct {
		spoil func(dir string) error
		check error
		want  errs.Code
	}{
		"no files":       {spoil: func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)) }, want: errs.OK},
		"empty file":     {spoil: func(dir string) error { return os.Truncate(filepath.Join(dir, "pages.img"), 0) }, want: errs.DataLoss},
		"driver's check": {check: errs.New(errs.DataLoss, "pages.img is short"), want: errs.DataLoss},
		"symlink":        {spoil: func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "link")) }, want: errs.Internal},
	}
	for name, c := range cases {
		d, err := s.Begin("base", checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := write(d, "x"); err != nil {
			t.Fatal(err)
		}
		if c.spoil != nil {
			if err := c.spoil(d.Dir()); err != nil {
				t.Fatal(err)
			}
		}
		f := facts()
		if name == "no files" {
			f.Guest, c.want = nil, errs.DataLoss
		}
		f.Check = func(string) error { return c.check }
		if _, err := d.Publish(t.Context(), f); errs.CodeOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
		onlyThese(t, h)
	}
}

func TestNoiseIsChunkedWhole(t *testing.T) {
	s := open(t, newHome(t))
	d, err := s.Begin("noise", checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5_000_001)
	_, _ = rand.Read(b)
	if err := os.WriteFile(filepath.Join(d.Dir(), "f"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Publish(t.Context(), facts()); err != nil {
		t.Fatal(err)
	}
	m, err := s.Manifest("noise")
	if err != nil {
		t.Fatal(err)
	}
	var at int64
	for _, c := range m.Files[0].Chunks {
		if digest.Of(b[at:at+c.Size]) != c.SHA256 {
			t.Fatalf("the chunk at %d has another sum", at)
		}
		at += c.Size
	}
	if at != int64(len(b)) || m.Files[0].SHA256 != digest.Of(b) {
		t.Errorf("chunks cover %d of %d bytes", at, len(b))
	}
}
