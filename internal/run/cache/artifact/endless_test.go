package artifact

import (
	"archive/tar"
	"bytes"
	"io"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/run/cache/entry"
	"brood/internal/run/cache/store"
)

// repeat gives the same bytes for ever.
type repeat struct {
	b    []byte
	at   int
	read int64
}

func (r *repeat) Read(p []byte) (int, error) {
	n := copy(p, r.b[r.at:])
	r.at = (r.at + n) % len(r.b)
	r.read += int64(n)
	return n, nil
}

// TestEndlessArtifacts: a body that brings nothing is not read for ever.
func TestEndlessArtifacts(t *testing.T) {
	local, err := store.Open(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := func(b []byte) []byte { return z.EncodeAll(b, nil) }
	blob := entry.Content{Digest: digest.Of([]byte("hello")), Size: 5}
	e := &entry.Entry{Key: digest.Of([]byte("k")), Log: entry.Content{Digest: digest.Of(nil), Inline: []byte{}}, Files: []entry.File{{Path: "a/x", Perm: 0o644, Content: blob}}}
	var head, junk bytes.Buffer
	add := func(b *bytes.Buffer, name string, content []byte) {
		w := tar.NewWriter(b)
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o600, Typeflag: tar.TypeReg, Format: tar.FormatPAX}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	add(&head, entryName, e.Encode())
	add(&junk, "junk", nil)
	skippable := slices.Concat([]byte{0x50, 0x2a, 0x4d, 0x18, 0, 4, 0, 0}, make([]byte, 1024))
	empty := packed(nil)
	if len(empty) == 0 {
		empty = []byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x00, 0x01, 0x00, 0x00} // a frame of one block of no bytes
	}
	for name, endless := range map[string][]byte{
		"members": packed(junk.Bytes()), "skippable frames": skippable, "empty frames": empty, "zeros": packed(make([]byte, 1<<20)),
	} {
		for after, lead := range map[string][]byte{"after the entry": packed(head.Bytes()), "before it": nil} {
			if lead == nil && name == "empty frames" {
				continue // as those that are skipped, only slower
			}
			body := &repeat{b: endless}
			_, err := unpack(io.MultiReader(bytes.NewReader(lead), body), local)
			if !errs.Is(err, errs.DataLoss) || body.read > entry.Most+2*spare {
				t.Errorf("%s %s: %d bytes read, %v", name, after, body.read, err)
			}
		}
	}
}
