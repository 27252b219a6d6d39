package files

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"brood/internal/base/content"
	"brood/internal/base/errs"
	"brood/internal/run/cache/glob"
	"brood/internal/run/cache/stamp"
)

// During tells Changed what was under way when files may have been written.
type During struct {
	// Began is when it began; zero is that nothing was.
	Began time.Time
	// Made says that a file is its own to write; nil is that none is.
	Made func(path string) bool
}

// wrote says that a file was touched meanwhile, whatever it holds now: who read
// it in between may have read something else. Of times before, the contents
// tell enough.
func (d During) wrote(f File, now stamp.Stat) bool {
	if d.Began.IsZero() || now == f.stat || now.CTime < d.Began.Add(-stamp.Granule).UnixNano() {
		return false
	}
	return d.Made == nil || !d.Made(f.Path)
}

// Changed returns the path of a file that is not as the snapshot has it, or was
// written since d began, "" when there is none.
func (s *Snapshot) Changed(ctx context.Context, list []File, d During) (string, error) {
	var again []File
	for _, f := range list {
		st, err := stamp.Of(s.abs(f.Path))
		if f.Mode == Submodule && err == nil && st.Dir() {
			continue
		}
		if err != nil || modeOf(st) != modeOf(f.stat) {
			return f.Path, nil //nolint:nilerr // a file that is gone has changed
		}
		if d.wrote(f, st) {
			return f.Path, nil
		}
		if st != f.stat || !f.settled {
			again = append(again, f)
		}
	}
	if len(again) == 0 {
		return "", nil
	}
	fresh := make([]File, len(again))
	todo := make([]int, len(again))
	for i, f := range again {
		st, err := stamp.Of(s.abs(f.Path))
		if err != nil {
			return f.Path, nil //nolint:nilerr // a file that is gone has changed
		}
		fresh[i], todo[i] = f, i
		fresh[i].stat = st
	}
	if err := s.hash(ctx, fresh, todo); err != nil {
		return "", err
	}
	for i, f := range again {
		if fresh[i].ID != f.ID {
			return f.Path, nil
		}
	}
	return "", nil
}

// Search says where Appeared looks.
type Search struct {
	Dir string
	// Skip tells what is of no interest: a file, or a folder with all that is in
	// it.
	Skip func(name string, folder bool) bool
	// Named are globs whose files count though git ignores them; nil is none.
	Named *glob.Set
	// Top is a folder in which programs make files for a moment, such as a
	// project's own; below it they do not, and a folder that changed since Began
	// counts when nothing in it says why: what came into it has gone again, and
	// may have been read. The zero Began asks for what is there alone.
	Top   string
	Began time.Time
}

// Appeared returns the path of a file that could be an input and is not in the
// snapshot, or of a folder that had one, "" when there is none.
func (s *Snapshot) Appeared(q Search) (string, error) {
	dir := q.Dir
	if dir == "." {
		dir = ""
	}
	entries, err := os.ReadDir(filepath.Join(s.root, dir))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if st, e := os.Lstat(filepath.Join(s.root, dir)); err != nil && e == nil && !st.IsDir() {
		if q.Skip(dir, false) {
			return "", nil
		}
		return s.appeared(dir, fs.FileInfoToDirEntry(st), q)
	}
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if never(e.Name()) || q.Skip(name, e.IsDir()) {
			continue
		}
		found, err := s.appeared(name, e, q)
		if found != "" || err != nil {
			return found, err
		}
	}
	if s.lost(dir, entries, q) {
		return dir + "/", nil
	}
	return "", nil
}

func (s *Snapshot) appeared(name string, e fs.DirEntry, q Search) (string, error) {
	inside := q
	inside.Dir = name
	if e.IsDir() && s.folder(name) {
		return s.Appeared(inside)
	}
	if !e.IsDir() {
		if _, known := s.Find(name); known || !e.Type().IsRegular() && e.Type()&fs.ModeSymlink == 0 {
			return "", nil
		}
	}
	if _, module := s.Find(name); module {
		return "", nil
	}
	out, err := s.check.ignored(name, e.IsDir())
	switch {
	case err != nil || out && (e.IsDir() || !q.Named.Match(name)):
		return "", err
	case e.IsDir():
		return s.Appeared(inside)
	}
	return name, nil
}

// lost says that a folder changed and nothing in it says why: an entry that was
// written as well does, be it an output or what git ignores.
func (s *Snapshot) lost(dir string, entries []fs.DirEntry, q Search) bool {
	if q.Began.IsZero() || !strings.HasPrefix(dir, strings.TrimPrefix(q.Top+"/", "./")) || dir == "" {
		return false
	}
	since := q.Began.Add(-stamp.Granule).UnixNano()
	st, err := stamp.Of(s.abs(dir))
	if err != nil || max(st.MTime, st.CTime) < since {
		return false
	}
	for _, e := range entries {
		if st, err := stamp.Of(s.abs(path.Join(dir, e.Name()))); err != nil || st.CTime >= since {
			return false
		}
	}
	return true
}

// checker answers whether git ignores a path. It keeps one git process, which
// answers a path at a time, and what it said.
type checker struct {
	snapshot *Snapshot

	// mu makes a question and its answer one; the process answers at once.
	mu    sync.Mutex
	known map[string]bool
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	fail  error
}

func (c *checker) ignored(name string, folder bool) (bool, error) {
	if !c.snapshot.Git() {
		return c.snapshot.ignoredByFiles(name, folder), nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.known[name]; ok {
		return v, nil
	}
	v, err := c.ask(name)
	if errors.Is(err, exec.ErrNotFound) {
		return c.snapshot.ignoredByFiles(name, folder), nil
	}
	if err != nil {
		return false, err
	}
	if c.known == nil {
		c.known = map[string]bool{}
	}
	c.known[name] = v
	return v, nil
}

func (c *checker) ask(name string) (bool, error) {
	if c.fail == nil && c.cmd == nil {
		c.fail = c.start()
	}
	if c.fail != nil {
		return false, c.fail
	}
	if _, err := io.WriteString(c.in, "./"+name+"\x00"); err != nil {
		c.fail = errs.New(errs.Internal, "git check-ignore ended: %w", err)
		return false, c.fail
	}
	var field [4]string // source, line, pattern, path
	for i := range field {
		v, err := c.out.ReadString(0)
		if err != nil {
			c.fail = errs.New(errs.Internal, "git check-ignore ended at %q: %w", name, err)
			return false, c.fail
		}
		field[i] = strings.TrimSuffix(v, "\x00")
	}
	return field[2] != "" && !strings.HasPrefix(field[2], "!"), nil
}

func (c *checker) start() error {
	cmd := command(c.snapshot.root, "check-ignore", "-z", "--stdin", "--verbose", "--non-matching")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.cmd, c.in, c.out = cmd, in, bufio.NewReader(out)
	return nil
}

func (c *checker) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd == nil {
		return nil
	}
	err := c.in.Close()
	_ = c.cmd.Wait() // it ends with 1 when nothing was ignored
	c.cmd, c.fail = nil, errs.New(errs.FailedPrecondition, "the snapshot is closed")
	return err
}

// ignoredByFiles is for workspaces without git.
func (s *Snapshot) ignoredByFiles(name string, folder bool) bool {
	var rules []rule
	for dir := ""; ; {
		if b, err := content.ReadFile(filepath.Join(s.root, dir, ".gitignore"), ".gitignore", content.MaxText); err == nil {
			rules = append(rules, parseIgnore(dir, string(b))...)
		}
		rest := strings.TrimPrefix(name[len(dir):], "/")
		next, _, more := strings.Cut(rest, "/")
		dir = path.Join(dir, next)
		if ignored(rules, dir, folder || more) {
			return true
		}
		if !more {
			return false
		}
	}
}
