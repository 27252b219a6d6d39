package store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/run/cache/store"
)

func open(t *testing.T, maxBytes int64) (*store.Store, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := store.Open(dir, maxBytes)
	if err != nil {
		t.Fatal(err)
	}
	return s, dir
}

func noise(n int, seed byte) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{seed})
	_, _ = r.Read(b)
	return b
}

func TestContents(t *testing.T) {
	s, dir := open(t, 0)
	for name, b := range map[string][]byte{
		"empty": nil, "small": []byte("x"), "text": []byte(strings.Repeat("text ", 100_000)), "noise": noise(300_000, 1),
		"noise, then text": append(noise(64<<10, 2), bytes.Repeat([]byte("text"), 100_000)...),
	} {
		d, n, err := s.Put(bytes.NewReader(b))
		if err != nil || d != digest.Of(b) || n != int64(len(b)) || !s.Has(d) {
			t.Fatalf("%s: %s %d %v", name, d, n, err)
		}
		var out bytes.Buffer
		if err := s.Copy(&out, d, n); err != nil || !bytes.Equal(out.Bytes(), b) {
			t.Errorf("%s: %v", name, err)
		}
		if len(b) > 0 {
			if err := s.Copy(io.Discard, d, n-1); !errs.Is(err, errs.DataLoss) {
				t.Errorf("%s, as if it were shorter: %v", name, err)
			}
		}
	}
	d := digest.Of([]byte("nobody has it"))
	if err := s.Copy(io.Discard, d, 13); !errs.Is(err, errs.NotFound) || s.Has(d) {
		t.Errorf("missing: %v", err)
	}
	if err := s.Import(d, 13, strings.NewReader("nobody has iT")); !errs.Is(err, errs.DataLoss) || s.Has(d) {
		t.Errorf("another content: %v", err)
	}
	if err := s.Import(d, 13, strings.NewReader("nobody has it and more")); !errs.Is(err, errs.DataLoss) {
		t.Errorf("a longer content: %v", err)
	}
	if err := s.Import("../../x", 1, strings.NewReader("x")); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("no digest: %v", err)
	}
	broken := errors.New("broken")
	if _, _, err := s.Put(io.MultiReader(bytes.NewReader(noise(100_000, 3)), failing{broken})); !errors.Is(err, broken) {
		t.Errorf("a reader that breaks: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "tmp")); len(left) != 0 {
		t.Errorf("debris %v", left)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// names treats an entry as a list of digests.
func names(b []byte) ([]digest.Digest, error) {
	if bytes.HasPrefix(b, []byte("damaged")) {
		return nil, errs.New(errs.DataLoss, "damaged")
	}
	var all []digest.Digest
	for _, d := range strings.Fields(string(b)) {
		all = append(all, digest.Digest(d))
	}
	return all, nil
}

func TestSweepDropsWhatWasUnusedForLongest(t *testing.T) {
	s, dir := open(t, 0)
	old := func(path string, hours int) {
		at := time.Now().Add(-time.Duration(hours) * time.Hour)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	put := func(key string, hours int, blobs ...digest.Digest) {
		var b strings.Builder
		for _, d := range blobs {
			b.WriteString(string(d) + "\n")
		}
		k := digest.Of([]byte(key))
		if err := s.PutEntry(k, []byte(b.String())); err != nil {
			t.Fatal(err)
		}
		old(filepath.Join(dir, "entries", string(k[:2]), string(k)), hours)
	}
	var blobs []digest.Digest
	for i := range 5 {
		d, _, err := s.Put(bytes.NewReader(noise(100_000, byte(i))))
		if err != nil {
			t.Fatal(err)
		}
		old(filepath.Join(dir, "blobs", string(d[:2]), string(d)), 100)
		blobs = append(blobs, d)
	}
	fresh, _, err := s.Put(strings.NewReader("nobody names it yet"))
	if err != nil {
		t.Fatal(err)
	}
	put("newest", 1, blobs[0], blobs[1])
	put("shares", 2, blobs[1], blobs[2])
	put("oldest", 9, blobs[3])
	if err := s.PutEntry(digest.Of([]byte("bad")), []byte("damaged")); err != nil {
		t.Fatal(err)
	}
	left, err := s.Sweep(t.Context(), 310_000, names)
	if err != nil || left.Entries != 2 || left.Blobs != 4 || left.Bytes > 310_000 {
		t.Errorf("left %+v, %v", left, err)
	}
	for i, want := range []bool{true, true, true, false, false} {
		_, err := os.Stat(filepath.Join(dir, "blobs", string(blobs[i][:2]), string(blobs[i]))) // Has would renew it
		if (err == nil) != want {
			t.Errorf("blob %d: %v", i, !want)
		}
	}
	if !s.Has(fresh) {
		t.Error("a content whose entry may be on its way was dropped")
	}
	for key, want := range map[string]bool{"newest": true, "shares": true, "oldest": false, "bad": false} {
		if _, err := s.Entry(digest.Of([]byte(key)), 1000); (err == nil) != want {
			t.Errorf("%s: %v", key, err)
		}
	}
	n, err := s.Count(t.Context())
	if err != nil || n.Entries != 2 || n.Blobs != 4 {
		t.Errorf("count %+v, %v", n, err)
	}
	if left, err = s.Sweep(t.Context(), 0, names); err != nil || left.Entries != 0 || left.Blobs != 1 {
		t.Errorf("nothing may stay but what is fresh: %+v, %v", left, err)
	}
}

// Also of what was made just now: a result that goes takes its contents along.
func TestTheBoundIsKeptAcrossProcesses(t *testing.T) {
	for _, age := range []time.Duration{100 * time.Hour, time.Second} {
		_, dir := open(t, 0)
		for i := range 10 {
			s, err := store.Open(dir, 500_000)
			if err != nil {
				t.Fatal(err)
			}
			d, _, err := s.Put(bytes.NewReader(noise(100_000, byte(i))))
			if err != nil {
				t.Fatal(err)
			}
			at := time.Now().Add(time.Duration(i)*time.Millisecond - age)
			if err := s.PutEntry(digest.Of([]byte{byte(i)}), []byte(d)); err != nil {
				t.Fatal(err)
			}
			for _, p := range []string{filepath.Join(dir, "blobs", string(d[:2]), string(d)), filepath.Join(dir, "entries", string(digest.Of([]byte{byte(i)})[:2]), string(digest.Of([]byte{byte(i)})))} {
				if err := os.Chtimes(p, at, at); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Settle(t.Context(), names); err != nil {
				t.Fatal(err)
			}
			n, err := s.Count(t.Context())
			if err != nil || n.Bytes > 500_000 || n.Entries < min(i+1, 4) {
				t.Errorf("%s old, after %d: %+v, %v", age, i+1, n, err)
			}
		}
	}
}

// What a killed process left half written goes with the next sweep, and what
// somebody writes stays.
func TestSweepTakesWhatNobodyWrites(t *testing.T) {
	s, dir := open(t, 0)
	r, w := io.Pipe()
	written := make(chan error, 1)
	group := life.NewGroup(t.Context())
	group.Go("write", func(context.Context) error {
		_, _, err := s.Put(r)
		written <- err
		return nil
	})
	if _, err := w.Write(noise(300_000, 1)); err != nil { // until the file is there
		t.Fatal(err)
	}
	tmp := filepath.Join(dir, "tmp")
	left := filepath.Join(tmp, "blob-left")
	if err := os.WriteFile(left, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir(tmp)
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, e := range all {
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(tmp, e.Name()), old, old); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Sweep(t.Context(), 0, names); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what nobody writes stays")
	}
	if err := errors.Join(w.Close(), <-written, group.Wait()); err != nil {
		t.Errorf("what was being written: %v", err)
	}
}
