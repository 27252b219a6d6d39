package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"brood/internal/base/digest"
	"brood/internal/base/id"
	"brood/internal/home"
)

// Names returns the contents that an entry's bytes name; an error makes it an
// entry to drop.
type Names func(b []byte) ([]digest.Digest, error)

// Usage is what the store holds.
type Usage struct {
	Entries, Blobs int
	Bytes          int64
}

// Settle adds what was written since Open to the store's account, and sweeps
// when that exceeds the bound, or nobody has counted for a day.
func (s *Store) Settle(ctx context.Context, names Names) error {
	if s.written.Load() == 0 {
		return nil
	}
	lock := flock.New(filepath.Join(s.dir, "account.lock"), flock.SetPermissions(0o600))
	if err := lock.Lock(); err != nil {
		return home.DiskError(err, "lock the cache's account")
	}
	total, counted := s.account()
	total += s.written.Swap(0)
	err := s.setAccount(total, counted)
	if e := lock.Unlock(); err != nil || e != nil {
		return home.DiskError(errors.Join(err, e), "the cache's account")
	}
	if s.max <= 0 || total <= s.max && time.Since(counted) < 24*time.Hour {
		return nil
	}
	_, err = s.Sweep(ctx, s.max, names)
	return err
}

// account reads how many bytes the store holds and when they were counted.
func (s *Store) account() (total int64, counted time.Time) {
	b, err := os.ReadFile(filepath.Join(s.dir, "account"))
	if err != nil {
		return 0, time.Time{}
	}
	a, c, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	total, _ = strconv.ParseInt(a, 10, 64)
	unix, _ := strconv.ParseInt(c, 10, 64)
	return total, time.Unix(unix, 0)
}

func (s *Store) setAccount(total int64, counted time.Time) error {
	text := strconv.FormatInt(total, 10) + " " + strconv.FormatInt(counted.Unix(), 10) + "\n"
	name := filepath.Join(s.tmp(), "account-"+id.Random(8))
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(name, filepath.Join(s.dir, "account"))
}

// item is a file of the store.
type item struct {
	name string // digest or key
	path string
	size int64
	used time.Time
}

// Sweep drops what was unused for longest until the store holds at most limit
// bytes, but for contents that nothing names yet, and returns what is left. Another process that sweeps already is not
// waited for.
func (s *Store) Sweep(ctx context.Context, limit int64, names Names) (Usage, error) {
	lock := flock.New(filepath.Join(s.dir, "sweep.lock"), flock.SetPermissions(0o600))
	ok, err := lock.TryLock()
	if err != nil || !ok {
		return Usage{}, home.DiskError(err, "lock the cache")
	}
	defer func() { _ = lock.Unlock() }() // the end of the process frees it too
	now := time.Now()
	s.removeDebris(now)
	entries, err := s.list(ctx, "entries")
	if err != nil {
		return Usage{}, err
	}
	blobs, err := s.list(ctx, "blobs")
	if err != nil {
		return Usage{}, err
	}
	slices.SortFunc(entries, func(a, b item) int { return b.used.Compare(a.used) })
	left, named, dropped := Usage{}, map[digest.Digest]bool{}, map[digest.Digest]bool{}
	size := make(map[digest.Digest]int64, len(blobs))
	for _, b := range blobs {
		size[digest.Digest(b.name)] = b.size
	}
	full := false
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return left, err
		}
		need, ok := s.needs(e, names)
		sum := e.size
		for _, d := range need {
			if !named[d] {
				sum += size[d]
			}
		}
		full = full || left.Bytes+sum > limit
		if !ok || full {
			_ = os.Remove(e.path) // gone already is as good
			for _, d := range need {
				dropped[d] = true
			}
			continue
		}
		left.Entries++
		left.Bytes += sum
		for _, d := range need {
			named[d] = true
		}
	}
	for _, b := range blobs {
		switch {
		case named[digest.Digest(b.name)]:
			left.Blobs++
		case now.Sub(b.used) > fresh, dropped[digest.Digest(b.name)]:
			// Who is about to name a dropped one again has a result with a hole
			// then, which is a miss.
			_ = os.Remove(b.path)
		default:
			left.Blobs++
			left.Bytes += b.size
		}
	}
	return left, home.DiskError(s.setAccount(left.Bytes, now), "the cache's account")
}

func (s *Store) needs(e item, names Names) ([]digest.Digest, bool) {
	b, err := os.ReadFile(e.path)
	if err != nil {
		return nil, false
	}
	need, err := names(b)
	return need, err == nil
}

// Count measures the store without changing it.
func (s *Store) Count(ctx context.Context) (Usage, error) {
	var u Usage
	for _, kind := range []string{"entries", "blobs"} {
		all, err := s.list(ctx, kind)
		if err != nil {
			return u, err
		}
		for _, it := range all {
			u.Bytes += it.size
		}
		if kind == "entries" {
			u.Entries = len(all)
		} else {
			u.Blobs = len(all)
		}
	}
	return u, nil
}

func (s *Store) list(ctx context.Context, kind string) ([]item, error) {
	var all []item
	err := filepath.WalkDir(filepath.Join(s.dir, kind), func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return errors.Join(err, ctx.Err())
		}
		if _, err := digest.Parse(d.Name()); err != nil {
			return nil //nolint:nilerr // not ours
		}
		if st, err := d.Info(); err == nil {
			all = append(all, item{name: d.Name(), path: p, size: st.Size(), used: st.ModTime()})
		}
		return nil
	})
	if err != nil {
		return nil, home.DiskError(err, "read the cache")
	}
	return all, nil
}

// removeDebris deletes what killed processes left half written.
func (s *Store) removeDebris(now time.Time) {
	entries, err := os.ReadDir(s.tmp())
	if err != nil {
		return
	}
	for _, e := range entries {
		name := filepath.Join(s.tmp(), e.Name())
		st, err := e.Info()
		if err != nil {
			continue
		}
		age := now.Sub(st.ModTime())
		if age > tooOld || age > settled && strings.HasPrefix(e.Name(), blobPrefix) && abandoned(name) {
			_ = os.Remove(name) // another process may have
		}
	}
}

// abandoned says that nobody writes a content any more.
func abandoned(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
