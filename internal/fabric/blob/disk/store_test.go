package disk_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"brood/internal/base/errs"
	"brood/internal/fabric/blob"
	"brood/internal/fabric/blob/disk"
)

func open(t *testing.T, dir string, most int64) *disk.Store {
	t.Helper()
	s, err := disk.Open(dir, most)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *disk.Store, b []byte) blob.Digest {
	t.Helper()
	d := blob.Of(b)
	if err := s.Put(d, bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	return d
}

func read(s *disk.Store, d blob.Digest) ([]byte, error) {
	r, err := s.Open(d, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func files(t *testing.T, dir string) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && e.Name() != "lock" && e.Name() != "cache.json" {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWhatIsPutIsThereAfterARestart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 0)
	d := put(t, s, []byte("hello"))
	action := blob.Of([]byte("action")).Hash
	if err := s.PutResult("team", action, []byte("result")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tmp", "w-123"), []byte("hel"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := disk.Open(dir, 0); !errs.Is(err, errs.AlreadyExists) {
		t.Errorf("two processes share the folder: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, 0)
	defer s.Close()
	if b, err := read(s, d); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := s.Result("team", action); err != nil || string(b) != "result" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := s.Result("other", action); !errs.Is(err, errs.NotFound) {
		t.Errorf("another instance's result: %v", err)
	}
	if n := files(t, dir); n != 2 {
		t.Errorf("%d files: what was half done is left", n)
	}
}

func TestWrongBytesAreNeverPlaced(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 0)
	defer s.Close()
	d := blob.Of([]byte("hello"))
	for name, r := range map[string]io.Reader{
		"other":  strings.NewReader("hullo"),
		"short":  strings.NewReader("hell"),
		"long":   strings.NewReader("hello!"),
		"broken": io.MultiReader(strings.NewReader("hello"), iotestErr{}),
	} {
		if err := s.Put(d, r); err == nil {
			t.Errorf("%s: it was taken", name)
		}
		if s.Has(d) || files(t, dir) != 0 {
			t.Errorf("%s: something was placed", name)
		}
	}
}

type iotestErr struct{}

func (iotestErr) Read([]byte) (int, error) { return 0, errors.New("the line broke") }

func TestSpoiledFilesAreFoundOutAndRemoved(t *testing.T) {
	for _, content := range []string{"hullo", "hell", ""} {
		dir := t.TempDir()
		s := open(t, dir, 0)
		d := put(t, s, []byte("hello"))
		if err := os.WriteFile(filepath.Join(dir, "cas", string(d.Hash[:2]), string(d.Hash)), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := read(s, d); err == nil {
			t.Errorf("%q was read for hello", content)
		}
		if s.Has(d) {
			t.Errorf("%q is still there", content)
		}
		put(t, s, []byte("hello"))
		if b, err := read(s, d); err != nil || string(b) != "hello" {
			t.Errorf("it is not repaired: %q, %v", b, err)
		}
		s.Close()
	}
}

func TestRemovedBehindItsBack(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 0)
	defer s.Close()
	d := put(t, s, []byte("hello"))
	if err := os.RemoveAll(filepath.Join(dir, "cas", string(d.Hash[:2]))); err != nil {
		t.Fatal(err)
	}
	if _, err := read(s, d); !errs.Is(err, errs.NotFound) {
		t.Errorf("%v", err)
	}
	if s.Has(d) {
		t.Error("it is still in the books")
	}
	put(t, s, []byte("hello"))
}

func TestLeastUsedGoesFirst(t *testing.T) {
	dir := t.TempDir()
	content := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 40_000) }
	s := open(t, dir, 10*40_960)
	var list []blob.Digest
	for i := range 10 {
		list = append(list, put(t, s, content(i)))
	}
	if _, err := read(s, list[0]); err != nil { // a use
		t.Fatal(err)
	}
	list = append(list, put(t, s, content(10)))
	if !s.Has(list[0]) || s.Has(list[1]) || !s.Has(list[10]) {
		t.Errorf("kept: %v %v %v", s.Has(list[0]), s.Has(list[1]), s.Has(list[10]))
	}
	if bytes, n := s.Size(); bytes > 10*40_960 || n != 10 || files(t, dir) != 10 {
		t.Errorf("%d bytes in %d files, on disk %d", bytes, n, files(t, dir))
	}
	if err := s.Put(blob.Of(make([]byte, 1<<20)), bytes.NewReader(make([]byte, 1<<20))); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("larger than the cache: %v", err)
	}
	// The times of use survive; a smaller bound holds at once.
	old := time.Now().Add(-time.Hour)
	for _, d := range list[2:6] {
		if err := os.Chtimes(filepath.Join(dir, "cas", string(d.Hash[:2]), string(d.Hash)), old, old); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	s = open(t, dir, 6*40_960)
	defer s.Close()
	for i, d := range list {
		if want := i != 1 && (i < 2 || i > 5); s.Has(d) != want {
			t.Errorf("blob %d is there: %v", i, s.Has(d))
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 40*8192)
	defer s.Close()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := range 100 {
				b := []byte(strings.Repeat(fmt.Sprint((i+k)%60), 3000))
				d := blob.Of(b)
				if err := s.Put(d, bytes.NewReader(b)); err != nil {
					t.Error(err)
				}
				if got, err := read(s, d); err != nil && !errs.Is(err, errs.NotFound) || err == nil && !bytes.Equal(got, b) {
					t.Errorf("read: %v", err)
				}
			}
		})
	}
	wg.Wait()
	bytes, n := s.Size()
	if bytes > 40*8192 || n != files(t, dir) {
		t.Errorf("%d bytes, %d files in the books, %d on disk", bytes, n, files(t, dir))
	}
}
