package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"brood/internal/run/cache/stamp"
)

// folders is what the last look for untracked files led to: which there are,
// and how every folder stood that is not ignored. As long as these stand so, and
// what says what is ignored does, git need not be asked again. In a folder that
// changed it is enough that every name in it is known: most tools replace a file
// to change it.
type folders struct {
	where   [sha256.Size]byte // the workspace, and what leads git to its configuration
	tracked [sha256.Size]byte // the paths in the index, and which are repositories
	rules   []ruleFile
	all     []folder // sorted by path
	others  []string // untracked and not ignored, as git lists them; sorted
	dirty   bool
}

// ruleFile is a file that says what is ignored, absolute; its stat is zero when
// there was none.
type ruleFile struct {
	path string
	stat stamp.Stat
}

// folder is one that is not ignored, relative to the root. One whose stat is
// zero is looked into always.
type folder struct {
	path   string
	stat   stamp.Stat
	hidden []string // the names in it that git ignores, "/" after folders; sorted
}

// whereabouts is all that decides what git ignores but the files in rules.
func whereabouts(root string, r *repo) [sha256.Size]byte {
	h := sha256.New()
	h.Write([]byte(strings.Join([]string{root, r.top, r.gitDir, r.common}, "\x00")))
	env := os.Environ()
	slices.Sort(env)
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "GIT_CONFIG") || name == "HOME" || name == "XDG_CONFIG_HOME" {
			h.Write([]byte("\x00" + kv))
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// pathsOf names what an index has.
func pathsOf(records []record) [sha256.Size]byte {
	h := sha256.New()
	buf := make([]byte, 0, 4096)
	for i := range records {
		buf = append(append(buf, records[i].path...), 0)
		if records[i].mode == modeGitlink {
			buf = append(buf, '/')
		}
		if len(buf) > 2048 {
			h.Write(buf)
			buf = buf[:0]
		}
	}
	h.Write(buf)
	return [sha256.Size]byte(h.Sum(nil))
}

// holds says that git would list the same files again.
func (x *folders) holds(ctx context.Context, root string, r *repo, records []record) bool {
	if x.where != whereabouts(root, r) || x.tracked != pathsOf(records) {
		return false
	}
	for _, r := range x.rules {
		if st, _ := statOrNone(r.path); st != r.stat {
			return false
		}
	}
	began := time.Now()
	var strange atomic.Bool
	changed := make([]stamp.Stat, len(x.all)) // of those that have to be looked into
	each(ctx, len(x.all), func(i int) {
		d := &x.all[i]
		if strange.Load() {
			return
		}
		st, err := stamp.Of(filepath.Join(root, d.path))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil || !st.Dir() || st != d.stat && !x.knows(root, d, records):
			strange.Store(true)
		case st != d.stat:
			changed[i] = st
		}
	})
	if strange.Load() || ctx.Err() != nil {
		return false
	}
	x.renew(root, changed, began)
	return true
}

// renew remembers how the folders stand that were looked into, where a change
// since the look began would show.
func (x *folders) renew(root string, changed []stamp.Stat, began time.Time) {
	for i, st := range changed {
		if st == (stamp.Stat{}) || !st.Settled(began) {
			continue
		}
		if again, err := stamp.Of(filepath.Join(root, x.all[i].path)); err == nil && again == st {
			x.all[i].stat, x.dirty = st, true
		}
	}
}

func statOrNone(path string) (stamp.Stat, error) {
	st, err := stamp.Of(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return st, err
}

// knows says that a folder holds nothing that was not there before.
func (x *folders) knows(root string, d *folder, records []record) bool {
	entries, err := os.ReadDir(filepath.Join(root, d.path))
	if err != nil {
		return false
	}
	for _, e := range entries {
		base, name := e.Name(), path.Join(d.path, e.Name())
		switch {
		case never(base):
			if base == ".git" && d.path != "" {
				return false
			}
		case e.IsDir():
			_, listed := slices.BinarySearchFunc(x.all, name, func(f folder, name string) int { return strings.Compare(f.path, name) })
			if !listed && !has(d.hidden, base+"/") && !isSubmodule(records, name) {
				return false
			}
		case base == ignoreName && !x.ruled(filepath.Join(root, name)):
			return false
		case e.Type().IsRegular(), e.Type()&fs.ModeSymlink != 0:
			if !has(x.others, name) && !has(d.hidden, base) && !isTracked(records, name) {
				return false
			}
		}
	}
	return true
}

const ignoreName = ".gitignore"

// ruled says that a file of rules was there.
func (x *folders) ruled(file string) bool {
	i, ok := slices.BinarySearchFunc(x.rules, file, func(r ruleFile, file string) int { return strings.Compare(r.path, file) })
	return ok && x.rules[i].stat != (stamp.Stat{})
}

func has(sorted []string, s string) bool {
	_, ok := slices.BinarySearch(sorted, s)
	return ok
}

// entry finds a path in an index.
func entry(records []record, name string) (record, bool) {
	i, ok := slices.BinarySearchFunc(records, name, func(r record, name string) int { return strings.Compare(r.path, name) })
	if !ok {
		return record{}, false
	}
	return records[i], true
}

func isTracked(records []record, name string) bool {
	r, ok := entry(records, name)
	return ok && r.mode != modeGitlink
}

func isSubmodule(records []record, name string) bool {
	r, ok := entry(records, name)
	return ok && r.mode == modeGitlink
}

// below says that something in a sorted list of paths lies in dir.
func below[E any](list []E, dir string, pathOf func(E) string) bool {
	i, _ := slices.BinarySearchFunc(list, dir+"/", func(e E, at string) int { return strings.Compare(pathOf(e), at) })
	return i < len(list) && strings.HasPrefix(pathOf(list[i]), dir+"/")
}

// learner looks at the folders once git has listed what is untracked.
type learner struct {
	root    string
	repo    *repo
	records []record
	when    int64 // the index's, as it was read
	others  []string
	check   *checker
	before  time.Time // when git began to look
	x       *folders
}

// errRestless says that something changed while it was looked at, or cannot be
// remembered: the next run tries again.
var errRestless = errors.New("the folders cannot be remembered now")

// learn makes the index of folders. What git listed is others; whatever changed
// since before is not believed.
func (l *learner) learn(ctx context.Context) (*folders, error) {
	slices.Sort(l.others)
	l.x = &folders{where: whereabouts(l.root, l.repo), tracked: pathsOf(l.records), others: l.others, dirty: true}
	if err := l.visit(ctx, ""); err != nil {
		return nil, err
	}
	if err := l.addRules(ctx); err != nil {
		return nil, err
	}
	if err := l.sameIndex(ctx); err != nil {
		return nil, err
	}
	for i := range l.x.all {
		d := &l.x.all[i]
		if st, err := stamp.Of(filepath.Join(l.root, d.path)); err != nil || st != d.stat || !st.Settled(l.before) {
			d.stat, d.hidden = stamp.Stat{}, nil
		}
	}
	slices.SortFunc(l.x.all, func(a, b folder) int { return strings.Compare(a.path, b.path) })
	slices.SortFunc(l.x.rules, func(a, b ruleFile) int { return strings.Compare(a.path, b.path) })
	return l.x, nil
}

// sameIndex checks that git looked with the index that was read, and that it
// read no rules from there: it does where they are not in the work tree.
func (l *learner) sameIndex(ctx context.Context) error {
	all, when, err := l.repo.index(ctx)
	if err != nil {
		return err
	}
	if when != l.when || when+int64(stamp.Granule) > l.before.UnixNano() {
		return errRestless
	}
	for i := range all {
		if path.Base(all[i].path) != ignoreName {
			continue
		}
		if _, err := stamp.Of(filepath.Join(l.repo.top, all[i].path)); err != nil {
			return errRestless
		}
	}
	return nil
}

func (l *learner) visit(ctx context.Context, dir string) error {
	at := filepath.Join(l.root, dir)
	st, err := stamp.Of(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its parent changed, then
	}
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		return err
	}
	d := folder{path: dir, stat: st}
	if dir != "" && slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == ".git" }) {
		return errRestless // whether it is a repository of its own is git's to say, each time
	}
	var inner []string
	for _, e := range entries {
		base, name := e.Name(), path.Join(dir, e.Name())
		switch {
		case never(base):
		case e.IsDir():
			into, err := l.enters(name)
			if err != nil {
				return err
			}
			switch {
			case into:
				inner = append(inner, name)
			case !isSubmodule(l.records, name):
				d.hidden = append(d.hidden, base+"/")
			}
		case e.Type().IsRegular(), e.Type()&fs.ModeSymlink != 0:
			if base == ignoreName {
				l.x.rules = append(l.x.rules, ruleFile{path: filepath.Join(l.root, name)})
			}
			if !isTracked(l.records, name) && !has(l.others, name) {
				d.hidden = append(d.hidden, base)
			}
		}
	}
	slices.Sort(d.hidden)
	l.x.all = append(l.x.all, d)
	for _, name := range inner {
		if err := l.visit(ctx, name); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// enters says that a folder is looked into: it holds files that are not ignored,
// or may come to.
func (l *learner) enters(name string) (bool, error) {
	switch {
	case isSubmodule(l.records, name):
		return false, nil
	case below(l.records, name, func(r record) string { return r.path }), below(l.others, name, func(s string) string { return s }), has(l.others, name+"/"):
		return true, nil
	}
	ignored, err := l.check.ignored(name, true)
	return !ignored, err
}

// addRules adds the files that say what is ignored, as they stand, besides
// those that were met. None may have changed since git began to look.
func (l *learner) addRules(ctx context.Context) error {
	more, err := l.repo.rules(ctx)
	if err != nil {
		return err
	}
	for dir := l.root; dir != l.repo.top; { // above the workspace
		dir = filepath.Dir(dir)
		more = append(more, filepath.Join(dir, ignoreName))
	}
	for _, file := range more {
		l.x.rules = append(l.x.rules, ruleFile{path: file})
	}
	for i := 0; i < len(l.x.rules) && i < rulesMost; i++ {
		f := &l.x.rules[i]
		if f.stat, err = statOrNone(f.path); err != nil {
			return err
		}
		if f.stat != (stamp.Stat{}) && !f.stat.Settled(l.before) {
			return errRestless
		}
		if f.stat.Link() { // the next one may be a link again
			to, err := os.Readlink(f.path)
			if err != nil {
				return err
			}
			l.x.rules = append(l.x.rules, ruleFile{path: fromFile(f.path, to)})
		}
	}
	if len(l.x.rules) > rulesMost {
		return errRestless
	}
	return nil
}

// rulesMost bounds what is asked for at each run; links may lead in circles.
const rulesMost = 10_000

// fromFile is the path that a file names.
func fromFile(file, to string) string {
	if filepath.IsAbs(to) {
		return to
	}
	return filepath.Join(filepath.Dir(file), to)
}

// rules returns the files outside the work tree that say what git ignores, and
// those that say which these are; also those that are not there.
func (r *repo) rules(ctx context.Context) ([]string, error) {
	out, err := git(ctx, r.top, nil, "config", "--list", "--show-origin", "-z")
	if err != nil {
		return nil, err
	}
	home := os.Getenv("HOME")
	xdg := os.Getenv("XDG_CONFIG_HOME")
	if xdg == "" {
		xdg = filepath.Join(home, ".config")
	}
	all := []string{
		"/etc/gitconfig", filepath.Join(home, ".gitconfig"), filepath.Join(xdg, "git", "config"), filepath.Join(xdg, "git", "ignore"),
		filepath.Join(r.common, "config"), filepath.Join(r.gitDir, "config.worktree"), filepath.Join(r.common, "info", "exclude"),
	}
	for _, name := range []string{"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"} {
		if file := os.Getenv(name); filepath.IsAbs(file) {
			all = append(all, file)
		} else if file != "" {
			return nil, errRestless
		}
	}
	// Some have their own place for the system's; older ones do not say.
	if system, err := git(ctx, r.top, nil, "var", "GIT_CONFIG_SYSTEM"); err == nil {
		for file := range strings.Lines(string(system)) {
			all = append(all, strings.TrimSuffix(file, "\n"))
		}
	}
	fields := bytes.Split(out, []byte{0})
	for i := 0; i+1 < len(fields); i += 2 {
		origin, inFile := strings.CutPrefix(string(fields[i]), "file:")
		if inFile {
			origin = fromFile(filepath.Join(r.top, ignoreName), origin) // git says it from where it is
			all = append(all, origin)
		}
		key, value, _ := strings.Cut(string(fields[i+1]), "\n")
		if rest, ok := strings.CutPrefix(value, "~/"); ok {
			value = filepath.Join(home, rest)
		}
		switch leads := key == "include.path" || key == "core.excludesfile"; {
		case strings.HasPrefix(key, "includeif."):
			return nil, errRestless // it may hold or not, by what only git knows
		case leads && (strings.HasPrefix(value, "~") || strings.HasPrefix(value, "%")):
			return nil, errRestless // somebody else's home, or where git is installed
		case key == "include.path" && inFile:
			all = append(all, fromFile(origin, value))
		case key == "core.excludesfile" && filepath.IsAbs(value):
			all = append(all, value)
		case key == "core.excludesfile", key == "include.path":
			return nil, errRestless
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
