package disk

import (
	"container/list"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/fabric/blob"
)

// Store is a folder of blobs and results.
type Store struct {
	dir  string
	max  int64
	lock *flock.Flock

	mu    sync.Mutex // guards the fields below; held over no file's contents
	items map[string]*list.Element
	used  *list.List // of *item, the one used last in front
	size  int64
}

// item is one file.
type item struct {
	name string // below dir, with slashes
	size int64
	// touched is the file's time of use on disk.
	touched time.Time
}

// A file counts as much as it takes: filesystems give out blocks.
const block = 4096

func (i *item) takes() int64 { return (i.size + block - 1) / block * block }

// stale is how old a time of use on disk becomes before it is renewed: it
// matters after a restart only.
const stale = 10 * time.Minute

// Open takes a folder, making it when it is not there. It holds about max
// bytes; 0 is no bound. FailedPrecondition, and nothing was touched, when the
// folder is neither new nor empty nor a Store's.
func Open(dir string, maxBytes int64) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, "cache folder: %w", err)
	}
	if err := claim(dir); err != nil {
		return nil, err
	}
	for _, sub := range []string{"cas", "ac", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, diskError(err, "cache folder "+dir)
		}
	}
	s := &Store{dir: dir, max: maxBytes, items: map[string]*list.Element{}, used: list.New(), lock: flock.New(filepath.Join(dir, "lock"), flock.SetPermissions(0o600))}
	ok, err := s.lock.TryLock()
	if err != nil {
		return nil, diskError(err, "lock "+dir)
	}
	if !ok {
		return nil, errs.New(errs.AlreadyExists, "another process serves %s: use another folder, or stop it", dir)
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, s.lock.Unlock())
	}
	return s, nil
}

// Close lets another process have the folder.
func (s *Store) Close() error { return s.lock.Unlock() }

// MaxBlob is the largest blob that fits; 0 is any.
func (s *Store) MaxBlob() int64 { return s.max }

// load reads what is there, and removes what a killed process left half done.
// A file of another name than this package gives is nobody's here: it is
// neither counted nor removed.
func (s *Store) load() error {
	if err := s.sweep(); err != nil {
		return err
	}
	var all []*item
	for _, sub := range []string{"cas", "ac"} {
		err := filepath.WalkDir(filepath.Join(s.dir, sub), func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			name, err := filepath.Rel(s.dir, path)
			if err != nil || !named.MatchString(filepath.ToSlash(name)) {
				return err
			}
			st, err := e.Info()
			if err != nil {
				return err
			}
			all = append(all, &item{name: filepath.ToSlash(name), size: st.Size(), touched: st.ModTime()})
			return nil
		})
		if err != nil {
			return diskError(err, "reading "+s.dir)
		}
	}
	slices.SortFunc(all, func(a, b *item) int { return b.touched.Compare(a.touched) })
	for _, i := range all {
		s.items[i.name] = s.used.PushBack(i)
		s.size += i.takes()
	}
	s.mu.Lock()
	gone := s.evict("")
	s.mu.Unlock()
	s.remove(gone)
	return nil
}

// What casName and actionName make, and os.CreateTemp of half.
var (
	named    = regexp.MustCompile(`^(cas|ac/[0-9a-f]{16})/[0-9a-f]{2}/[0-9a-f]{64}$`)
	halfDone = regexp.MustCompile(`^w-[0-9]+$`)
)

const half = "w-*"

// sweep removes what was half written. The lock is held: nobody writes.
func (s *Store) sweep() error {
	tmp := filepath.Join(s.dir, "tmp")
	entries, err := os.ReadDir(tmp)
	if err != nil {
		return diskError(err, "left-over files in "+tmp)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !halfDone.MatchString(e.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(tmp, e.Name())); err != nil {
			return diskError(err, "left-over files in "+tmp)
		}
	}
	return nil
}

func casName(d blob.Digest) string {
	return "cas/" + string(d.Hash[:2]) + "/" + string(d.Hash)
}

// actionName keeps instances apart without trusting their names as paths.
func actionName(instance string, action digest.Digest) string {
	sum := sha256.Sum256([]byte(instance))
	return "ac/" + hex.EncodeToString(sum[:8]) + "/" + string(action[:2]) + "/" + string(action)
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, filepath.FromSlash(name)) }

// use says whether a file is there, and that it was used.
func (s *Store) use(name string, size int64) bool {
	now := time.Now()
	s.mu.Lock()
	e, ok := s.items[name]
	var renew bool
	if ok {
		i := e.Value.(*item)
		if ok = size < 0 || i.size == size; ok {
			s.used.MoveToFront(e)
			if renew = now.Sub(i.touched) > stale; renew {
				i.touched = now
			}
		}
	}
	s.mu.Unlock()
	if renew {
		// The worst that a failure does is an early removal after a restart.
		_ = os.Chtimes(s.path(name), now, now)
	}
	return ok
}

// Has says whether a blob is there, and counts as a use of it.
func (s *Store) Has(d blob.Digest) bool { return d == blob.Empty || s.use(casName(d), d.Size) }

// Open returns a blob's bytes from an offset on; NotFound when it is not
// there. The reader of a whole blob ends with DataLoss instead of io.EOF when
// the file was spoiled, which is then removed.
func (s *Store) Open(d blob.Digest, offset int64) (io.ReadCloser, error) {
	if offset < 0 || offset > d.Size {
		return nil, errs.New(errs.InvalidArgument, "the offset %d lies outside the %d bytes of %s", offset, d.Size, d)
	}
	if d == blob.Empty {
		return io.NopCloser(strings.NewReader("")), nil
	}
	name := casName(d)
	if !s.use(name, d.Size) {
		return nil, errs.New(errs.NotFound, "blob %s is not in the cache", d)
	}
	f, err := os.Open(s.path(name))
	if errors.Is(err, os.ErrNotExist) {
		s.forget(name)
		return nil, errs.New(errs.NotFound, "blob %s is not in the cache", d)
	}
	if err != nil {
		return nil, diskError(err, "blob "+d.String())
	}
	if offset > 0 {
		if _, err := f.Seek(offset, io.SeekStart); err != nil {
			f.Close()
			return nil, diskError(err, "blob "+d.String())
		}
		return f, nil
	}
	return &checked{f: f, s: s, d: d, sum: digest.NewWriter()}, nil
}

// checked reads a whole blob and compares it with its name.
type checked struct {
	f   *os.File
	s   *Store
	d   blob.Digest
	sum *digest.Writer
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.f.Read(p)
	_, _ = c.sum.Write(p[:n]) // never fails
	if errors.Is(err, io.EOF) {
		if e := c.d.Check(c.sum); e != nil {
			c.s.Drop(c.d)
			return n, e
		}
	}
	return n, err
}

func (c *checked) Close() error { return c.f.Close() }

// Put stores a blob that r yields; InvalidArgument when it is another's.
func (s *Store) Put(d blob.Digest, r io.Reader) error {
	if s.max > 0 && d.Size > s.max {
		return errs.New(errs.InvalidArgument, "blob %s is larger than the whole cache, which has %d bytes", d, s.max)
	}
	if s.Has(d) {
		return nil
	}
	sum := digest.NewWriter()
	return s.write(casName(d), func(f *os.File) error {
		// One byte more than it should have is enough to know.
		if _, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(r, d.Size+1)); err != nil {
			return err
		}
		if err := d.Check(sum); err != nil {
			return errs.New(errs.InvalidArgument, "%w", err)
		}
		return nil
	})
}

// write makes a file: whole under a temporary name, then under its own.
func (s *Store) write(name string, fill func(*os.File) error) (err error) {
	f, err := os.CreateTemp(filepath.Join(s.dir, "tmp"), half)
	if err != nil {
		return diskError(err, "cache folder")
	}
	defer func() {
		f.Close()
		if err != nil {
			_ = os.Remove(f.Name()) // else the next process does
		}
	}()
	if err := fill(f); err != nil {
		return diskError(err, "writing to the cache")
	}
	st, err := f.Stat()
	if err != nil {
		return diskError(err, "cache folder")
	}
	if err := place(f.Name(), s.path(name)); err != nil {
		return diskError(err, "cache folder")
	}
	s.mu.Lock()
	if old, ok := s.items[name]; ok {
		s.size -= old.Value.(*item).takes()
		s.used.Remove(old)
	}
	i := &item{name: name, size: st.Size(), touched: time.Now()}
	s.items[name] = s.used.PushFront(i)
	s.size += i.takes()
	gone := s.evict(name)
	s.mu.Unlock()
	s.remove(gone)
	return nil
}

// place renames, making the folder first when there is none.
func place(from, to string) error {
	err := os.Rename(from, to)
	if errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		return os.Rename(from, to)
	}
	return err
}

// evict takes what was used longest ago out of the books until the rest fits,
// but not the file named keep. The caller holds the lock, and removes the
// files after it.
func (s *Store) evict(keep string) (gone []string) {
	for e := s.used.Back(); e != nil && s.max > 0 && s.size > s.max; {
		i, before := e.Value.(*item), e.Prev()
		if i.name != keep {
			s.used.Remove(e)
			delete(s.items, i.name)
			s.size -= i.takes()
			gone = append(gone, i.name)
		}
		e = before
	}
	return gone
}

// remove deletes files that are not in the books. One that came back
// meanwhile is a loss of that file only: whoever reads it finds it missing.
func (s *Store) remove(names []string) {
	for _, n := range names {
		s.mu.Lock()
		_, back := s.items[n]
		s.mu.Unlock()
		if !back {
			_ = os.Remove(s.path(n))
		}
	}
}

// forget takes a file out of the books that is not there.
func (s *Store) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.items[name]; ok {
		s.size -= e.Value.(*item).takes()
		s.used.Remove(e)
		delete(s.items, name)
	}
}

// Drop removes a blob.
func (s *Store) Drop(d blob.Digest) {
	s.forget(casName(d))
	_ = os.Remove(s.path(casName(d)))
}

// PutResult stores the bytes of a result.
func (s *Store) PutResult(instance string, action digest.Digest, b []byte) error {
	return s.write(actionName(instance, action), func(f *os.File) error {
		_, err := f.Write(b)
		return err
	})
}

// Result returns the bytes of a result; NotFound when there is none.
func (s *Store) Result(instance string, action digest.Digest) ([]byte, error) {
	name := actionName(instance, action)
	missing := errs.New(errs.NotFound, "action %s has no result in the cache", action)
	if !s.use(name, -1) {
		return nil, missing
	}
	b, err := os.ReadFile(s.path(name))
	if errors.Is(err, os.ErrNotExist) {
		s.forget(name)
		return nil, missing
	}
	if err != nil {
		return nil, diskError(err, "result of "+string(action))
	}
	return b, nil
}

// DropResult removes a result.
func (s *Store) DropResult(instance string, action digest.Digest) {
	name := actionName(instance, action)
	s.forget(name)
	_ = os.Remove(s.path(name))
}

// Size returns how much the folder holds, in bytes and files.
func (s *Store) Size() (bytes int64, files int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size, len(s.items)
}

// diskError gives an error its code; one that it has stays.
func diskError(err error, what string) error {
	switch {
	case errs.CodeOf(err) != errs.Internal:
		return err
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return errs.New(errs.InsufficientDisk, "%s: the disk is full: %w", what, err)
	}
	return errs.New(errs.Internal, "%s: %w", what, err)
}
