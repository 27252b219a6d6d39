package cache

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"

	"brood/internal/base/id"
	"brood/internal/home"
	"brood/internal/run"
	"brood/internal/run/cache/files"
	"brood/internal/run/cache/glob"
)

// stage is this process's folder for files on their way into the tree: on the
// same file system, and nothing that git or a task looks at.
type stage struct {
	c     *Cache
	name  string // relative to the root
	dir   *os.File
	lock  *flock.Flock
	count atomic.Int64
}

// openStage makes the stage at its first use.
func (c *Cache) openStage() (*stage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stage != nil {
		return c.stage, nil
	}
	s := &stage{c: c, name: stageName(id.Random(8))}
	var err error
	for range 10 { // another process may tidy up at the same moment
		if err = s.open(); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, home.DiskError(err, "make a folder to stage outputs in")
	}
	c.stage = s
	s.removeOthers()
	return s, nil
}

func (s *stage) open() error {
	root := s.c.root
	if err := root.MkdirAll(s.name, 0o700); err != nil {
		return err
	}
	if err := root.WriteFile(files.Private+"/.gitignore", []byte("*\n"), 0o600); err != nil {
		return err
	}
	s.lock = flock.New(filepath.Join(s.c.cfg.Root, s.name, "lock"), flock.SetPermissions(0o600))
	if err := s.lock.Lock(); err != nil {
		return err
	}
	var err error
	s.dir, err = root.Open(s.name)
	return err
}

// create makes an empty file in the stage. Names in it are single elements, so
// the folder's descriptor is all that is needed to stay in it.
func (s *stage) create() (name string, f *os.File, err error) {
	name = strconv.FormatInt(s.count.Add(1), 10)
	fd, err := unix.Openat(int(s.dir.Fd()), name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", nil, err
	}
	return name, os.NewFile(uintptr(fd), name), nil
}

// date sets the time of a staged file.
func (s *stage) date(name string, at time.Time) error {
	ts := unix.NsecToTimespec(at.UnixNano())
	return unix.UtimesNanoAt(int(s.dir.Fd()), name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}

func (s *stage) discard(names []string) {
	for _, n := range names {
		_ = unix.Unlinkat(int(s.dir.Fd()), n, 0) // Close removes what stays
	}
}

// mover renames staged files into the tree. It keeps the last folder open, into
// which the root let it, so that a rename is one call for each file.
type mover struct {
	stage *stage
	path  string
	dir   *os.File
}

func (m *mover) move(name, to string) error {
	dir, base := path.Split(to)
	if dir = path.Clean(dir); m.dir == nil || m.path != dir {
		m.close()
		f, err := m.stage.c.root.Open(dir)
		if err != nil {
			return err
		}
		m.path, m.dir = dir, f
	}
	err := m.rename(name, base)
	if errors.Is(err, fs.ErrPermission) {
		if e := m.dir.Chmod(0o755); e == nil {
			err = m.rename(name, base)
		}
	}
	return err
}

func (m *mover) rename(name, base string) error {
	return unix.Renameat(int(m.stage.dir.Fd()), name, int(m.dir.Fd()), base)
}

func (m *mover) close() {
	if m.dir != nil {
		_ = m.dir.Close() // it was only looked into
	}
	m.dir = nil
}

// removeOthers removes the stages of processes that died.
func (s *stage) removeOthers() {
	all, err := os.ReadDir(filepath.Join(s.c.cfg.Root, stageName()))
	if err != nil {
		return
	}
	for _, e := range all {
		name := stageName(e.Name())
		if name == s.name || !id.Plain(e.Name()) {
			continue
		}
		lock := filepath.Join(s.c.cfg.Root, name, "lock")
		if _, err := os.Stat(lock); err != nil {
			if st, err := e.Info(); err == nil && time.Since(st.ModTime()) > time.Minute {
				_ = s.c.root.RemoveAll(name) // it never got its lock
			}
			continue
		}
		l := flock.New(lock)
		if ok, err := l.TryLock(); err == nil && ok {
			_ = s.c.root.RemoveAll(name) // the next run tries again
			_ = l.Unlock()
		}
	}
}

// closeStage removes the stage, and the folders it was in if nobody else uses
// them.
func (c *Cache) closeStage() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if s := c.stage; s != nil {
		err = errors.Join(s.dir.Close(), c.root.RemoveAll(s.name), s.lock.Unlock())
		if c.root.Remove(stageName()) == nil {
			_ = c.root.Remove(files.Private + "/.gitignore")
			_ = c.root.Remove(files.Private)
		}
		c.stage = nil
	}
	return errors.Join(err, c.folder.Close(), c.root.Close())
}

func globs(t *run.Task) (*glob.Set, error) { return glob.New(t.Dir, t.Outputs) }
