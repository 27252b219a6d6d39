// Package digest holds content addresses: SHA-256 sums written as 64
// lower-case hex digits. A Digest that was parsed is safe as a file name.
// Everything here is safe for concurrent use.
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"sync"

	"brood/internal/base/errs"
)

// Digest is the SHA-256 of some content, in lower-case hex.
type Digest string

// Of returns the digest of b.
func Of(b []byte) Digest {
	sum := sha256.Sum256(b)
	return Digest(hex.EncodeToString(sum[:]))
}

// Parse checks a digest that came from outside.
func Parse(s string) (Digest, error) {
	if len(s) != sha256.Size*2 {
		return "", errs.New(errs.InvalidArgument, "digest %.80q is not 64 hex digits", s)
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", errs.New(errs.InvalidArgument, "digest %q is not lower-case hex", s)
		}
	}
	return Digest(s), nil
}

// Short returns the first 12 digits, for people.
func (d Digest) Short() string {
	if len(d) < 12 {
		return string(d)
	}
	return string(d[:12])
}

// Writer hashes and counts what is written to it.
type Writer struct {
	h hash.Hash
	n int64
}

// NewWriter returns an empty Writer.
func NewWriter() *Writer { return &Writer{h: sha256.New()} }

// Write never fails.
func (w *Writer) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	return w.h.Write(p)
}

// Size returns how many bytes were written.
func (w *Writer) Size() int64 { return w.n }

// Digest returns the digest of what was written.
func (w *Writer) Digest() Digest { return Digest(hex.EncodeToString(w.h.Sum(nil))) }

// buffers are used again: most files are small, and many are hashed in a row.
var buffers = sync.Pool{New: func() any { return new([256 << 10]byte) }}

// Read hashes r to its end and returns its digest and size.
func Read(r io.Reader) (Digest, int64, error) {
	w := NewWriter()
	b := buffers.Get().(*[256 << 10]byte)
	defer buffers.Put(b)
	if _, err := io.CopyBuffer(w, r, b[:]); err != nil {
		return "", 0, err
	}
	return w.Digest(), w.Size(), nil
}
