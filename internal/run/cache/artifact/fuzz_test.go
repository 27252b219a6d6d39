package artifact

import (
	"bytes"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"brood/internal/base/digest"
	"brood/internal/run/cache/entry"
	"brood/internal/run/cache/store"
)

func FuzzUnpack(f *testing.F) {
	s, err := store.Open(f.TempDir(), 0)
	if err != nil {
		f.Fatal(err)
	}
	d, n, err := s.Put(strings.NewReader(strings.Repeat("content", 1000)))
	if err != nil {
		f.Fatal(err)
	}
	e := &entry.Entry{Key: digest.Of([]byte("k")), Log: entry.Content{Digest: digest.Of(nil), Inline: []byte{}},
		Files: []entry.File{{Path: "a/x", Perm: 0o644, Content: entry.Content{Digest: d, Size: n}}}}
	var b bytes.Buffer
	if err := pack(&b, e, s); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	raw, err := zstd.NewReader(&b)
	if err != nil {
		f.Fatal(err)
	}
	defer raw.Close()
	var tar bytes.Buffer
	if _, err := tar.ReadFrom(raw); err != nil {
		f.Fatal(err)
	}
	f.Add(tar.Bytes())
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		local, err := store.Open(t.TempDir(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range [][]byte{b, z.EncodeAll(b, nil)} {
			e, err := unpack(bytes.NewReader(b), local)
			if err != nil {
				continue
			}
			for _, c := range e.Blobs() {
				if !local.Has(c.Digest) {
					t.Errorf("%s is missing", c.Digest)
				}
			}
		}
	})
}
