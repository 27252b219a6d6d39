package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"

	"brood/internal/base/content"
	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
)

// Store is a folder of contents and entries.
type Store struct {
	dir     string
	max     int64
	written atomic.Int64 // bytes since Open
}

// A temporary file has no writer any more after tooOld, and after settled when
// nobody has it locked.
const (
	tooOld  = 24 * time.Hour
	settled = time.Minute
)

// fresh is how long the time of use of something is not renewed, and how long
// a content that no entry has named is kept.
const fresh = time.Hour

// Open makes the store in dir; it holds about max bytes, 0 is no bound.
func Open(dir string, maxBytes int64) (*Store, error) {
	s := &Store{dir: dir, max: maxBytes}
	for _, d := range []string{s.tmp(), filepath.Join(dir, "blobs"), filepath.Join(dir, "entries")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, home.DiskError(err, "cache folder")
		}
	}
	return s, nil
}

func (s *Store) tmp() string { return filepath.Join(s.dir, "tmp") }

func (s *Store) blob(d digest.Digest) string {
	return filepath.Join(s.dir, "blobs", string(d[:2]), string(d))
}

func (s *Store) entry(key digest.Digest) string {
	return filepath.Join(s.dir, "entries", string(key[:2]), string(key))
}

// A stored content begins with one of these.
const (
	raw    = 'r'
	packed = 'z'
)

// worthwhile says, by the content's beginning, that packing makes it smaller.
func worthwhile(head []byte) bool {
	if len(head) < 256 {
		return false
	}
	e := encoders.Get().(*zstd.Encoder)
	defer encoders.Put(e)
	return len(e.EncodeAll(head, nil)) < len(head)*9/10
}

var encoders = sync.Pool{New: func() any {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		return nil // the options are right
	}
	return e
}}

var decoders = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		return nil
	}
	return d
}}

// headSize is how much of a content decides whether it is packed.
const headSize = 64 << 10

// Put stores what r yields and returns its digest and size.
func (s *Store) Put(r io.Reader) (digest.Digest, int64, error) {
	d, n, err := s.put(r, "", -1)
	if err != nil {
		return "", 0, home.DiskError(err, "store an output in the cache")
	}
	return d, n, nil
}

// Import stores a content that came from elsewhere; DataLoss when it is not
// the one that the digest and size name.
func (s *Store) Import(d digest.Digest, size int64, r io.Reader) error {
	if _, err := digest.Parse(string(d)); err != nil {
		return err
	}
	if _, _, err := s.put(r, d, size); err != nil {
		return home.DiskError(err, "store %s in the cache", d.Short())
	}
	return nil
}

// blobPrefix is what the names of contents that are being written begin with.
const blobPrefix = "blob-"

func (s *Store) put(r io.Reader, want digest.Digest, size int64) (d digest.Digest, n int64, err error) {
	if size >= 0 {
		r = io.LimitReader(r, size+1)
	}
	head := make([]byte, headSize)
	got, err := io.ReadFull(r, head)
	whole := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if err != nil && !whole {
		return "", 0, err
	}
	head = head[:got]
	f, err := os.CreateTemp(s.tmp(), blobPrefix+"*")
	if err != nil {
		return "", 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH); err != nil { // says that somebody writes it
		return "", 0, err
	}
	sum := digest.NewWriter()
	if err = s.fill(f, sum, head, r, whole); err != nil {
		return "", 0, err
	}
	d, n = sum.Digest(), sum.Size()
	if want != "" && (d != want || n != size) {
		return "", 0, errs.New(errs.DataLoss, "the content is not %s: it has another digest", want.Short())
	}
	if err = s.keep(f, s.blob(d)); err != nil {
		return "", 0, err
	}
	return d, n, nil
}

// fill writes head and the rest of r to f, packed or not, and to sum as it is.
func (s *Store) fill(f *os.File, sum io.Writer, head []byte, r io.Reader, whole bool) error {
	if !worthwhile(head) {
		if _, err := f.Write([]byte{raw}); err != nil {
			return err
		}
		return pour(io.MultiWriter(sum, f), head, r, whole)
	}
	if _, err := f.Write([]byte{packed}); err != nil {
		return err
	}
	e := encoders.Get().(*zstd.Encoder)
	e.Reset(f)
	defer func() { e.Reset(nil); encoders.Put(e) }()
	if err := pour(io.MultiWriter(sum, e), head, r, whole); err != nil {
		return errors.Join(err, e.Close())
	}
	return e.Close()
}

func pour(w io.Writer, head []byte, r io.Reader, whole bool) error {
	if _, err := w.Write(head); err != nil || whole {
		return err
	}
	_, err := io.CopyBuffer(w, struct{ io.Reader }{r}, make([]byte, 256<<10))
	return err
}

// keep closes f and gives it its name.
func (s *Store) keep(f *os.File, name string) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := place(f.Name(), name); err != nil {
		return err
	}
	s.written.Add(st.Size())
	return nil
}

// place renames, making the folder first when there is none.
func place(from, to string) error {
	err := os.Rename(from, to)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// Has says that the content is there, and renews its time of use, so that no
// other process drops it before the entry that is about to name it comes.
func (s *Store) Has(d digest.Digest) bool { return s.renew(s.blob(d)) }

func (s *Store) renew(name string) bool {
	st, err := os.Stat(name)
	if err != nil {
		return false
	}
	if now := time.Now(); now.Sub(st.ModTime()) > fresh/2 {
		if err := os.Chtimes(name, now, now); err != nil {
			return false
		}
	}
	return true
}

// damaged is a content that is not what it was stored as. It is gone by now.
func (s *Store) damaged(d digest.Digest, why error) error {
	return errs.New(errs.DataLoss, "cached content %s is damaged: %w", d.Short(), errors.Join(why, os.Remove(s.blob(d))))
}

// Copy writes a content to w, checking it on the way: on DataLoss what was
// written is worth nothing, and the content is removed. NotFound when it is
// not there.
func (s *Store) Copy(w io.Writer, d digest.Digest, size int64) error {
	f, err := os.Open(s.blob(d))
	if errors.Is(err, fs.ErrNotExist) {
		return errs.New(errs.NotFound, "content %s is not in the cache", d.Short())
	}
	if err != nil {
		return home.DiskError(err, "read the cache")
	}
	defer f.Close()
	var kind [1]byte
	if _, err := io.ReadFull(f, kind[:]); err != nil {
		return s.damaged(d, err)
	}
	var r io.Reader = f
	switch kind[0] {
	case raw:
	case packed:
		z := decoders.Get().(*zstd.Decoder)
		if err := z.Reset(f); err != nil {
			return s.damaged(d, err)
		}
		defer func() { _ = z.Reset(nil); decoders.Put(z) }()
		r = z
	default:
		return s.damaged(d, fmt.Errorf("unknown kind %q", kind))
	}
	return s.pipe(w, io.LimitReader(r, size+1), d, size)
}

func (s *Store) pipe(w io.Writer, r io.Reader, d digest.Digest, size int64) error {
	sum := digest.NewWriter()
	buf := make([]byte, max(512, min(size+1, 256<<10)))
	for {
		n, err := r.Read(buf)
		_, _ = sum.Write(buf[:n]) // never fails
		if _, e := w.Write(buf[:n]); e != nil {
			return e
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return s.damaged(d, err)
		}
	}
	if sum.Size() != size || sum.Digest() != d {
		return s.damaged(d, errors.New("it has another digest"))
	}
	return nil
}

// PutEntry stores the bytes of an entry, replacing what was there.
func (s *Store) PutEntry(key digest.Digest, b []byte) (err error) {
	defer func() { err = home.DiskError(err, "store a result in the cache") }()
	name := filepath.Join(s.tmp(), "entry-"+id.Random(8))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(b); err == nil {
		err = s.keep(f, s.entry(key))
	}
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(name))
	}
	return nil
}

// Entry returns the bytes of an entry; NotFound when there is none.
func (s *Store) Entry(key digest.Digest, most int64) ([]byte, error) {
	f, err := content.Open(s.entry(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errs.New(errs.NotFound, "no result for %s is in the cache", key.Short())
	}
	if err != nil {
		return nil, home.DiskError(err, "read the cache")
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, home.DiskError(err, "read the cache")
	}
	if st.Size() > most {
		return nil, errs.New(errs.DataLoss, "the result for %s is damaged", key.Short())
	}
	b := make([]byte, st.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, home.DiskError(err, "read the cache")
	}
	if now := time.Now(); now.Sub(st.ModTime()) > fresh/2 {
		_ = os.Chtimes(f.Name(), now, now) // it may have been dropped; then it was read just in time
	}
	return b, nil
}

// RemoveEntry drops an entry, if it still has these bytes.
func (s *Store) RemoveEntry(key digest.Digest, b []byte) {
	if now, err := os.ReadFile(s.entry(key)); err == nil && bytes.Equal(now, b) {
		_ = os.Remove(s.entry(key)) // another process was faster, or will be
	}
}
