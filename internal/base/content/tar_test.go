package content_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"brood/internal/base/content"
	"brood/internal/base/errs"
)

// tarNames reads a tar stream, every other file's content only.
func tarNames(r io.Reader) (names []string, err error) {
	t := content.NewTar(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return names, err
		}
		names = append(names, h.Name)
		if len(names)%2 == 0 {
			if _, err := io.Copy(io.Discard, t); err != nil {
				return names, err
			}
		}
	}
}

// Wherever a stream is cut, it is not taken for a whole one, unless only zeros
// of its end are missing.
func TestTarCutShort(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct {
		name string
		data []byte
	}{
		{"a", []byte("some")},
		{"zeros", make([]byte, 2048)},
		{"padded", make([]byte, 700)},
		// With its closing zero this name takes a block and a byte.
		{strings.Repeat("n", 512), []byte("x")},
		{"empty", nil},
	} {
		must(t, w.WriteHeader(&tar.Header{Name: f.name, Typeflag: tar.TypeReg, Size: int64(len(f.data)), Mode: 0o644, Format: tar.FormatGNU}))
		_, err := w.Write(f.data)
		must(t, err)
	}
	must(t, w.Flush())
	body := b.Len()
	must(t, w.Close())
	whole := b.Bytes()
	for n := range len(whole) + 1 {
		names, err := tarNames(bytes.NewReader(whole[:n]))
		// The second block of the end may be missing, not a part of it.
		if n == body+512 || n == len(whole) {
			if err != nil || len(names) != 5 {
				t.Errorf("%d of %d bytes: %d files, %v", n, len(whole), len(names), err)
			}
			continue
		}
		if !errs.Is(err, errs.DataLoss) || !strings.Contains(err.Error(), "the tar stream is cut short") {
			t.Fatalf("%d of %d bytes: %q, %v", n, len(whole), names, err)
		}
	}
	if names, err := tarNames(iotest.OneByteReader(bytes.NewReader(whole))); err != nil || !slices.Contains(names, "zeros") {
		t.Errorf("byte by byte: %q, %v", names, err)
	}
	if _, err := tarNames(iotest.ErrReader(errs.New(errs.Canceled, "stop"))); !errs.Is(err, errs.Canceled) {
		t.Errorf("another failure became %v", err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(whole)
	must(t, errors.Join(err, z.Close()))
	r, err := gzip.NewReader(bytes.NewReader(packed.Bytes()[:packed.Len()/2]))
	must(t, err)
	if _, err := tarNames(r); !errs.Is(err, errs.DataLoss) {
		t.Errorf("half of a packed one: %v", err)
	}
}
