package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"brood/internal/base/life"
	"brood/internal/run/cache/stamp"
)

// Mode is what git records of a file besides its content.
type Mode string

// The modes.
const (
	Regular    Mode = "100644"
	Executable Mode = "100755"
	Link       Mode = "120000"
	Submodule  Mode = "160000" // one that is not checked out; its id is the commit
)

// File is a file that can be an input.
type File struct {
	// Path is relative to the workspace's root, with slashes; it need not be UTF-8.
	Path string
	Mode Mode
	// ID is git's object id of the content, in hex; of the bytes as they lie
	// there when an attribute lets git record others.
	ID string
	// Tracked says that git's index has it.
	Tracked bool

	stat      stamp.Stat
	settled   bool // the stat data would show a later change
	rewritten bool // git does not record the bytes that lie there
	repo      int  // index into Snapshot.repos; -1 without git
	recorded  Mode // the index's, when the work tree has another one
}

// Was says that the file stood so when the snapshot was taken.
func (f *File) Was(s stamp.Stat) bool { return f.stat == s }

// Snapshot is a workspace's files at one moment.
type Snapshot struct {
	root  string
	files []File // sorted by path
	loose []string
	repos []*repo
	table *stamp.Table

	check checker
	named namedFiles
	links targets

	foldersFile string
	folders     *folders    // that hold, or that were learnt
	learner     *learner    // nil: there is nothing to learn
	learning    *life.Group // nil: nobody learns
}

// Config says what to read.
type Config struct {
	Root string // absolute
	// Stamps remembers ids between runs; nil does not.
	Stamps *stamp.Table
	// Folders is the file that spares asking git what is untracked; "" asks.
	Folders string
}

// Read takes a snapshot.
func Read(ctx context.Context, cfg Config) (*Snapshot, error) {
	root, err := filepath.EvalSymlinks(cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("read the files of %s: %w", cfg.Root, err)
	}
	s := &Snapshot{root: root, table: cfg.Stamps, foldersFile: cfg.Folders}
	s.check.snapshot = s
	if r := findRepo(root); r != nil {
		err = s.addRepo(ctx, r, "")
	} else {
		err = s.addTree(ctx, "", -1)
	}
	if err != nil {
		return nil, fmt.Errorf("read the files of %s: %w", cfg.Root, err)
	}
	slices.SortFunc(s.files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	s.files = slices.CompactFunc(s.files, func(a, b File) bool { return a.Path == b.Path })
	if err := s.identify(ctx); err != nil {
		return nil, fmt.Errorf("read the files of %s: %w", cfg.Root, err)
	}
	for i := range s.files {
		if !s.files[i].Tracked {
			s.loose = append(s.loose, s.files[i].Path)
		}
	}
	if s.learner != nil {
		s.learn(ctx)
	}
	return s, nil
}

// Close ends the process that the snapshot may own, and remembers what spares
// the next one to look again.
func (s *Snapshot) Close() error {
	if s.learning != nil {
		_ = s.learning.Wait() // what was not learnt is tried again
	}
	if s.folders != nil && s.folders.dirty {
		_ = s.folders.save(s.foldersFile) // the same
	}
	return s.check.close()
}

// Root returns the workspace's root, links resolved.
func (s *Snapshot) Root() string { return s.root }

// addTree adds what a walk finds: there is no git, or none to ask.
func (s *Snapshot) addTree(ctx context.Context, dir string, repo int) error {
	var names []string
	if err := walk(s.root, dir, nil, func(name string) { names = append(names, name) }); err != nil {
		return err
	}
	return s.addLoose(ctx, names, repo)
}

// addRepo adds the files of a repository as far as they lie below dir, which
// is relative to the root.
func (s *Snapshot) addRepo(ctx context.Context, r *repo, dir string) error {
	n := len(s.repos)
	s.repos = append(s.repos, r)
	var others []string
	var noGit bool
	records, when, err := r.index(ctx)
	if err == nil {
		records, err = r.below(records, filepath.Join(s.root, dir))
	}
	if err != nil {
		return err
	}
	g := life.NewGroup(ctx)
	g.Go("list untracked files", func(ctx context.Context) error {
		var err error
		others, err = s.untracked(ctx, r, dir, records, when)
		if errors.Is(err, exec.ErrNotFound) {
			noGit, err = true, nil
		}
		return err
	})
	nested, err := s.addTracked(ctx, tracked{repo: n, dir: dir, records: records, when: when})
	if err = errors.Join(err, g.Wait()); err != nil {
		return err
	}
	if noGit {
		if err := s.addTree(ctx, dir, n); err != nil {
			return err
		}
	}
	var names []string
	for _, o := range others {
		if sub, ok := strings.CutSuffix(o, "/"); ok {
			nested = append(nested, path.Join(dir, sub))
		} else if !slices.ContainsFunc(strings.Split(o, "/"), never) {
			names = append(names, path.Join(dir, o))
		}
	}
	if err := s.addLoose(ctx, names, n); err != nil {
		return err
	}
	for _, sub := range nested {
		if inner := openRepo(filepath.Join(s.root, sub)); inner != nil {
			if err := s.addRepo(ctx, inner, sub); err != nil {
				return err
			}
		}
	}
	return nil
}

// untracked lists what git does not track below dir. At the root it is asked
// only when something changed since.
func (s *Snapshot) untracked(ctx context.Context, r *repo, dir string, records []record, when int64) ([]string, error) {
	at := filepath.Join(s.root, dir)
	if dir != "" || s.foldersFile == "" {
		return untracked(ctx, at)
	}
	if x := loadFolders(s.foldersFile); x != nil && x.holds(ctx, s.root, r, records) {
		s.folders = x
		return x.others, nil
	}
	before := time.Now()
	others, err := untracked(ctx, at)
	if err != nil {
		return nil, err
	}
	s.learner = &learner{root: s.root, repo: r, records: records, when: when, others: slices.Clone(others), check: &s.check, before: before}
	return others, nil
}

// learn begins to look at the folders, for the next run.
func (s *Snapshot) learn(ctx context.Context) {
	s.learning = life.NewGroup(context.WithoutCancel(ctx))
	s.learning.Go("learn the folders", func(ctx context.Context) error {
		x, err := s.learner.learn(ctx)
		s.folders = x // read after the group has ended
		return err
	})
}

type tracked struct {
	repo    int
	dir     string
	records []record // relative to dir
	when    int64
}

// addTracked adds the index's entries that exist, and returns the submodules
// that are checked out.
func (s *Snapshot) addTracked(ctx context.Context, t tracked) (nested []string, err error) {
	mine := t.records
	if t.dir != "" {
		for i := range mine {
			mine[i].path = path.Join(t.dir, mine[i].path)
		}
	}
	found := make([]File, len(mine))
	now := time.Now()
	each(ctx, len(mine), func(i int) {
		st, err := stamp.Of(filepath.Join(s.root, mine[i].path))
		if err == nil {
			found[i] = fromRecord(mine[i], st, t, now)
		}
	})
	for i, f := range found {
		switch {
		case f.Path == "":
			r := s.repos[t.repo]
			r.unseen = r.unseen || path.Base(mine[i].path) == attributesName
		case f.Mode == Submodule:
			if openRepo(filepath.Join(s.root, f.Path)) != nil {
				nested = append(nested, f.Path)
				continue
			}
			s.files = append(s.files, f)
		default:
			s.files = append(s.files, f)
		}
	}
	return nested, ctx.Err()
}

// fromRecord makes a File of an index entry and what lies in its place. A file
// without id must be read; one without path is none.
func fromRecord(r record, st stamp.Stat, t tracked, now time.Time) File {
	f := File{Path: r.path, Tracked: true, stat: st, settled: st.Settled(now), repo: t.repo, Mode: modeOf(st)}
	if r.mode == modeGitlink && st.Dir() {
		f.Mode, f.ID = Submodule, r.id
		return f
	}
	if f.Mode == "" {
		return File{}
	}
	sameType := st.Link() == (r.mode == modeLink)
	if sameType && r.proves(st, t.when) {
		f.ID = r.id
	}
	if sameType && f.Mode != Link && (r.mode == modeExec) != (f.Mode == Executable) {
		// Either it was changed, or the file system has no such bit: core.fileMode tells.
		f.ID, f.recorded = "", modeName(r.mode)
	}
	return f
}

func modeName(mode uint32) Mode {
	switch mode {
	case modeExec:
		return Executable
	case modeLink:
		return Link
	}
	return Regular
}

// modeOf returns "" for what is neither file nor link.
func modeOf(st stamp.Stat) Mode {
	switch {
	case st.Link():
		return Link
	case st.Regular() && st.Mode&0o100 != 0:
		return Executable
	case st.Regular():
		return Regular
	}
	return ""
}

// addLoose adds files that git does not track.
func (s *Snapshot) addLoose(ctx context.Context, names []string, repo int) error {
	found := make([]File, len(names))
	now := time.Now()
	each(ctx, len(names), func(i int) {
		st, err := stamp.Of(filepath.Join(s.root, names[i]))
		if err == nil && modeOf(st) != "" {
			found[i] = File{Path: names[i], Mode: modeOf(st), stat: st, settled: st.Settled(now), repo: repo}
		}
	})
	for _, f := range found {
		if f.Path != "" {
			s.files = append(s.files, f)
		}
	}
	return ctx.Err()
}

// each calls f for 0..n-1 on all cores, in pieces.
func each(ctx context.Context, n int, f func(i int)) {
	const piece = 256
	life.Each(ctx, (n+piece-1)/piece, runtime.GOMAXPROCS(0), func(ctx context.Context, p int) error {
		for i := p * piece; i < min(n, (p+1)*piece) && ctx.Err() == nil; i++ {
			f(i)
		}
		return nil
	})
}

// Files returns all files, sorted by path.
func (s *Snapshot) Files() []File { return s.files }

// Under returns the files in dir and below it; "." and "" are the root. The
// slice is the snapshot's own.
func (s *Snapshot) Under(dir string) []File {
	if dir == "" || dir == "." {
		return s.files
	}
	from := s.at(dir + "/")
	to := s.at(dir + "0") // the byte after "/"
	return s.files[from:to]
}

// at returns where path is or would be.
func (s *Snapshot) at(name string) int {
	i, _ := slices.BinarySearchFunc(s.files, name, func(f File, name string) int { return cmp.Compare(f.Path, name) })
	return i
}

// Find returns the file at path.
func (s *Snapshot) Find(name string) (File, bool) {
	i := s.at(name)
	if i < len(s.files) && s.files[i].Path == name {
		return s.files[i], true
	}
	return File{}, false
}

// Tracked says that git tracks the file at path.
func (s *Snapshot) Tracked(name string) bool {
	f, ok := s.Find(name)
	return ok && f.Tracked
}

// Loose says that some file below dir is not tracked.
func (s *Snapshot) Loose(dir string) bool {
	if dir == "" || dir == "." {
		return len(s.loose) > 0
	}
	i, _ := slices.BinarySearch(s.loose, dir+"/")
	return i < len(s.loose) && strings.HasPrefix(s.loose[i], dir+"/")
}

// folder says that a file lies below dir.
func (s *Snapshot) folder(dir string) bool {
	i := s.at(dir + "/")
	return i < len(s.files) && strings.HasPrefix(s.files[i].Path, dir+"/")
}

// Git says whether git has the workspace.
func (s *Snapshot) Git() bool { return len(s.repos) > 0 }

func (s *Snapshot) abs(name string) string { return filepath.Join(s.root, name) }

// readLink is os.Readlink without turning bytes into anything.
func readLink(path string) ([]byte, error) {
	to, err := os.Readlink(path)
	return []byte(to), err
}
