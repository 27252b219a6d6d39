package entry

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/run"
)

// Entry is the stored result of a task. Paths are relative to the workspace's
// root, with slashes, sorted, and need not be UTF-8.
type Entry struct {
	Key  run.Key
	Task id.Task
	// Took is how long the task ran, Usage what it used.
	Took  time.Duration
	Usage run.Usage
	Log   Content
	Files []File
	Links []Link
	Dirs  []Dir
}

// Content is some bytes. Inline is nil when they lie in the store.
type Content struct {
	Digest digest.Digest
	Size   int64
	Inline []byte
}

// File is a regular file.
type File struct {
	Path string
	Perm uint32 // of 0o777
	Content
}

// Link is a symbolic link; its target is as it was read.
type Link struct {
	Path, Target string
}

// Dir is a folder that is an output by itself.
type Dir struct {
	Path string
	Perm uint32
}

// LogMost bounds the output text of a task, which is read into memory. What is
// saved of one is half of that at most.
const LogMost = 32 << 20

// pathMost bounds a path and the target of a link: twice what Linux takes in a
// call, and errors of the system name them whole.
const pathMost = 8 << 10

// InlineMost is the largest content that rides in an entry: below that a file
// of its own costs more than its bytes. InlineAll bounds their sum.
const (
	InlineMost = 2 << 10
	InlineAll  = 64 << 10
)

// Sort puts the outputs in order.
func (e *Entry) Sort() {
	slices.SortFunc(e.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortFunc(e.Links, func(a, b Link) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortFunc(e.Dirs, func(a, b Dir) int { return cmp.Compare(a.Path, b.Path) })
}

// Blobs lists the contents that lie in the store, each once.
func (e *Entry) Blobs() []Content {
	seen := map[digest.Digest]bool{}
	var all []Content
	add := func(c Content) {
		if c.Inline == nil && c.Size > 0 && !seen[c.Digest] {
			seen[c.Digest] = true
			all = append(all, c)
		}
	}
	add(e.Log)
	for _, f := range e.Files {
		add(f.Content)
	}
	return all
}

// Size is how many bytes the outputs have.
func (e *Entry) Size() int64 {
	n := e.Log.Size
	for _, f := range e.Files {
		n += f.Size
	}
	return n
}

// Check refuses an entry that no save makes.
func (e *Entry) Check() error {
	seen := make(map[string]bool, len(e.Files)+len(e.Links)+len(e.Dirs))
	name := func(p string) error {
		if len(p) > pathMost {
			return errs.New(errs.DataLoss, "entry of %.80q: output %.200q has a path of %d bytes", string(e.Task), p, len(p))
		}
		if !Clean(p) {
			return errs.New(errs.DataLoss, "entry of %.80q: output %.200q is no path below the root", string(e.Task), p)
		}
		if seen[p] {
			return errs.New(errs.DataLoss, "entry of %.80q: output %.200q is there twice", string(e.Task), p)
		}
		seen[p] = true
		return nil
	}
	for _, f := range e.Files {
		if err := name(f.Path); err != nil {
			return err
		}
		if err := f.check(); err != nil || f.Perm > 0o777 {
			return errs.New(errs.DataLoss, "entry of %.80q: output %.200q is damaged", string(e.Task), f.Path)
		}
	}
	for _, l := range e.Links {
		if err := name(l.Path); err != nil {
			return err
		}
		if l.Target == "" || len(l.Target) > pathMost || strings.Contains(l.Target, "\x00") {
			return errs.New(errs.DataLoss, "entry of %.80q: link %.200q is damaged", string(e.Task), l.Path)
		}
	}
	for _, d := range e.Dirs {
		if err := name(d.Path); err != nil {
			return err
		}
		if d.Perm > 0o777 || !Enterable(d.Perm) {
			return errs.New(errs.DataLoss, "entry of %.80q: folder %.200q is damaged", string(e.Task), d.Path)
		}
	}
	if err := e.checkNesting(); err != nil {
		return err
	}
	if e.Took < 0 || e.Took > tookMost {
		return errs.New(errs.DataLoss, "entry of %.80q: it took %v", string(e.Task), e.Took)
	}
	if e.Log.Size > LogMost {
		return errs.New(errs.DataLoss, "entry of %.80q: an output text of %d bytes", string(e.Task), e.Log.Size)
	}
	return e.Log.check()
}

// Enterable says that who owns a folder with these permissions can look into it:
// one that nobody can is in the way of whatever comes after.
func Enterable(perm uint32) bool { return perm&0o500 == 0o500 }

// tookMost is longer than any task takes.
const tookMost = 365 * 24 * time.Hour

// checkNesting refuses what would lie in a file, or behind a link.
func (e *Entry) checkNesting() error {
	leaves := make(map[string]bool, len(e.Files)+len(e.Links))
	for _, f := range e.Files {
		leaves[f.Path] = true
	}
	for _, l := range e.Links {
		leaves[l.Path] = true
	}
	last := "." // the folder looked at last: what is beside each other is in one
	check := func(p string) error {
		for dir := path.Dir(p); dir != last && dir != "."; dir = path.Dir(dir) {
			if leaves[dir] {
				return errs.New(errs.DataLoss, "entry of %.80q: output %.200q is in %.200q, which is no folder", string(e.Task), p, dir)
			}
		}
		last = path.Dir(p)
		return nil
	}
	for _, f := range e.Files {
		if err := check(f.Path); err != nil {
			return err
		}
	}
	for _, l := range e.Links {
		if err := check(l.Path); err != nil {
			return err
		}
	}
	for _, d := range e.Dirs {
		if err := check(d.Path); err != nil {
			return err
		}
	}
	return nil
}

func (c Content) check() error {
	if _, err := digest.Parse(string(c.Digest)); err != nil {
		return err
	}
	if c.Size < 0 || c.Inline != nil && (int64(len(c.Inline)) != c.Size || digest.Of(c.Inline) != c.Digest) {
		return errs.New(errs.DataLoss, "a content is not what its digest says")
	}
	return nil
}

// Clean says that p is a path below the root, written in the one way, and not
// in a .git folder.
func Clean(p string) bool {
	if p == "" || p == "." || p[0] == '/' || path.Clean(p) != p || strings.Contains(p, "\x00") {
		return false
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." || strings.EqualFold(part, ".git") {
			return false
		}
	}
	return true
}
