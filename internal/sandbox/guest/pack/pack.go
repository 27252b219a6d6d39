package pack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"brood/internal/base/content"
	"brood/internal/base/errs"
)

// Stats counts what was copied.
type Stats struct {
	Entries int   // files, folders, links
	Bytes   int64 // of file content
	Skipped int   // sockets, devices, pipes
	// Names are the first of what was skipped, relative to the root.
	Names []string
}

// maxNames bounds Names.
const maxNames = 20

func (s *Stats) skip(name string) {
	s.Skipped++
	if len(s.Names) < maxNames {
		s.Names = append(s.Names, name)
	}
}

// maxLinks bounds the files remembered to keep hard links together; files
// beyond it are packed as separate ones.
const maxLinks = 100_000

// inode identifies a file on one machine.
type inode struct{ dev, ino uint64 }

type packer struct {
	tw    *tar.Writer
	stats Stats
	links map[inode]string
}

// Pack writes root and everything below it to w as a tar stream in which root
// is called name ("." puts a folder's content at the top). When root is a
// link it is followed.
func Pack(w io.Writer, root, name string) (Stats, error) {
	return pack(w, root, name, os.Stat)
}

// Link is Pack, but a root that is a link is packed as that link.
func Link(w io.Writer, root, name string) (Stats, error) {
	return pack(w, root, name, os.Lstat)
}

func pack(w io.Writer, root, name string, look func(string) (fs.FileInfo, error)) (Stats, error) {
	info, err := look(root)
	if err != nil {
		return Stats{}, osError(err)
	}
	if kind := content.Kind(info.Mode()); kind != "" {
		return Stats{}, errs.New(errs.Unsupported, "%.200s is a %s, which has no content to copy: name a file, folder or symlink", root, kind)
	}
	p := &packer{tw: tar.NewWriter(w), links: map[inode]string{}}
	if err := p.tree(root, name, info); err != nil {
		return p.stats, err
	}
	if err := p.tw.Close(); err != nil {
		return p.stats, fmt.Errorf("pack %.200s: %w", root, err)
	}
	return p.stats, nil
}

func (p *packer) tree(root, name string, info fs.FileInfo) error {
	if !info.IsDir() {
		return p.entry(root, name, info)
	}
	// A trailing separator makes WalkDir enter a link to a folder.
	return filepath.WalkDir(root+string(filepath.Separator), func(at string, d fs.DirEntry, err error) error {
		rel, e := filepath.Rel(root, at)
		if e != nil {
			return e
		}
		if rel == "." {
			if err != nil {
				return osError(err)
			}
			return p.entry(at, name, info)
		}
		if err == nil {
			err = p.listed(at, path.Join(name, filepath.ToSlash(rel)), d)
		}
		if content.Vanished(err) {
			p.stats.skip(path.Join(name, filepath.ToSlash(rel))) // programs go on while they are copied
			return nil
		}
		return osError(err)
	})
}

func (p *packer) listed(at, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	return p.entry(at, name, info)
}

func (p *packer) entry(at, name string, info fs.FileInfo) error {
	h := &tar.Header{
		Name: name, Mode: tarMode(info.Mode()), ModTime: info.ModTime(), Format: tar.FormatPAX,
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		h.Uid, h.Gid = int(st.Uid), int(st.Gid)
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case mode&fs.ModeSymlink != 0:
		target, err := os.Readlink(at)
		if err != nil {
			return osError(err)
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
	case mode.IsRegular():
		return p.file(at, h, info)
	default:
		p.stats.skip(name)
		return nil
	}
	p.stats.Entries++
	return p.tw.WriteHeader(h)
}

func (p *packer) file(at string, h *tar.Header, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	var key inode
	linked := ok && st.Nlink > 1
	if linked {
		key = inode{uint64(st.Dev), st.Ino} //nolint:unconvert // the type differs between systems
		if first, seen := p.links[key]; seen {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			p.stats.Entries++
			return p.tw.WriteHeader(h)
		}
	}
	f, err := os.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return osError(err)
	}
	defer f.Close()
	// What was opened counts, not what was listed: it may be another file now.
	if info, err = f.Stat(); err != nil {
		return osError(err)
	}
	if !info.Mode().IsRegular() {
		p.stats.skip(h.Name)
		return nil
	}
	r, size, err := content.Reader(f, info)
	if err != nil {
		return osError(err)
	}
	h.Typeflag, h.Size, h.Mode, h.ModTime = tar.TypeReg, size, tarMode(info.Mode()), info.ModTime()
	if err := p.tw.WriteHeader(h); err != nil {
		return err
	}
	if linked && len(p.links) < maxLinks {
		p.links[key] = h.Name
	}
	n, err := io.CopyBuffer(onlyWriter{p.tw}, io.LimitReader(r, h.Size), make([]byte, 64<<10))
	p.stats.Entries++
	p.stats.Bytes += n
	if err != nil {
		return osError(err)
	}
	if n < h.Size {
		return errs.New(errs.FailedPrecondition, "%.200s became shorter while it was copied: copy it again when nobody writes it", at)
	}
	return nil
}

// onlyWriter hides ReadFrom, which would bring a buffer of its own.
type onlyWriter struct{ io.Writer }

func tarMode(m fs.FileMode) int64 {
	bits := int64(m.Perm())
	if m&fs.ModeSetuid != 0 {
		bits |= 0o4000
	}
	if m&fs.ModeSetgid != 0 {
		bits |= 0o2000
	}
	if m&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}

// osError gives an error of the file system a code.
func osError(err error) error {
	if err == nil {
		return nil
	}
	err = clipped(err)
	switch text := err.Error(); {
	case os.IsNotExist(err):
		return errs.New(errs.NotFound, "%w", err)
	case os.IsExist(err):
		return errs.New(errs.AlreadyExists, "%w", err)
	case os.IsPermission(err):
		return errs.New(errs.PermissionDenied, "%w", err)
	case isErrno(err, syscall.ENOSPC), isErrno(err, syscall.EDQUOT):
		return errs.New(errs.InsufficientDisk, "%w", err)
	case isErrno(err, syscall.ENOTDIR), isErrno(err, syscall.EISDIR), isErrno(err, syscall.EROFS), isErrno(err, syscall.ELOOP):
		return errs.New(errs.FailedPrecondition, "%w", err)
	case isErrno(err, syscall.ENAMETOOLONG):
		return errs.New(errs.InvalidArgument, "%w", err)
	case strings.Contains(text, "path escapes from parent"):
		// os.Root has no exported error for this one. A link on the way leads
		// there: names do not.
		return errs.New(errs.InvalidArgument, "a symlink on the way leads out of the target: %w", err)
	default:
		return err
	}
}

// maxShown is how much of a name an error shows, in bytes.
const maxShown = 200

// clipped is an error of package os with names that can be read.
func clipped(err error) error {
	var one *fs.PathError
	var two *os.LinkError
	switch {
	case len(err.Error()) <= 2*maxShown:
	case errors.As(err, &one):
		return &fs.PathError{Op: one.Op, Path: clip(one.Path), Err: one.Err}
	case errors.As(err, &two):
		return &os.LinkError{Op: two.Op, Old: clip(two.Old), New: clip(two.New), Err: two.Err}
	}
	return err
}

func clip(name string) string {
	if len(name) <= maxShown {
		return name
	}
	return strings.ToValidUTF8(name[:maxShown], "") + "…"
}
