package pack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"brood/internal/base/content"
	"brood/internal/base/errs"
)

// Owner is a numeric user and group.
type Owner struct{ UID, GID int }

// Options say how to unpack.
type Options struct {
	Owner       *Owner // nil: whoever unpacks
	KeepOwner   bool   // as the tar stream says, instead
	SpecialBits bool   // keep setuid, setgid and sticky
}

// maxName bounds an entry's name in bytes: PATH_MAX.
const maxName = 4096

type unpacker struct {
	root  *os.Root
	opt   Options
	stats Stats
	buf   []byte
	// dir is the folder of the last file, open: paths are walked once for
	// all files of a folder. A new link ends that, since it may be on the way.
	dir     *os.Root
	dirName string
	// open holds the folders made on the way to the current entry,
	// outermost first: their modes and times are set when they are left.
	open []folder
}

type folder struct {
	name string
	mode fs.FileMode
	time time.Time
}

// Unpack writes a tar stream's entries below root. The stream is read to its
// end also when an entry is refused late; what was unpacked before stays.
func Unpack(r io.Reader, root *os.Root, opt Options) (Stats, error) {
	u := &unpacker{root: root, opt: opt, buf: make([]byte, 64<<10)}
	err := u.all(content.NewTar(r))
	return u.stats, errors.Join(err, u.forgetDir(), u.leave(""))
}

func (u *unpacker) forgetDir() error {
	if u.dir == nil {
		return nil
	}
	err := u.dir.Close()
	u.dir, u.dirName = nil, ""
	return err
}

// in returns the folder that a name is in, open, and the name in it.
func (u *unpacker) in(name string) (*os.Root, string, error) {
	dir, base := path.Split(name)
	if dir == "" {
		return u.root, base, nil
	}
	if u.dir != nil && u.dirName == dir {
		return u.dir, base, nil
	}
	if err := u.root.MkdirAll(path.Clean(dir), 0o755); err != nil {
		return nil, "", err
	}
	d, err := u.root.OpenRoot(path.Clean(dir))
	if err != nil {
		return nil, "", err
	}
	err = u.forgetDir()
	u.dir, u.dirName = d, dir
	return d, base, err
}

func (u *unpacker) all(tr *content.Tar) error {
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return coded(err)
		}
		name, err := cleanName(h.Name)
		if err != nil {
			return err
		}
		if err := u.leave(name); err != nil {
			return err
		}
		if noContent(h.Typeflag) {
			u.stats.skip(name)
			continue
		}
		if err := u.entry(name, h, tr); err != nil {
			return fmt.Errorf("unpack %.200q: %w", name, coded(err))
		}
		u.stats.Entries++
	}
}

// noContent tells what Pack leaves out, too.
func noContent(kind byte) bool {
	return kind == tar.TypeChar || kind == tar.TypeBlock || kind == tar.TypeFifo
}

// coded gives what went wrong a code: a damaged stream is data loss, what the
// sender or the file system said keeps its own.
func coded(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, tar.ErrFieldTooLong) {
		return errs.New(errs.DataLoss, "tar stream is damaged: %w", err)
	}
	if errs.CodeOf(err) != errs.Internal {
		return err
	}
	return osError(err)
}

// cleanName refuses names that mean a place outside.
func cleanName(name string) (string, error) {
	if len(name) > maxName {
		return "", errs.New(errs.InvalidArgument, "entry name %.200q is too long: it has %d bytes, and at most %d are taken", name, len(name), maxName)
	}
	clean := path.Clean(name)
	if name == "" || strings.ContainsRune(name, 0) || path.IsAbs(name) ||
		clean == ".." || strings.HasPrefix(clean, "../") {
		return "", errs.New(errs.InvalidArgument, "entry name %.200q is refused: only names below the target are unpacked", name)
	}
	return clean, nil
}

func (u *unpacker) entry(name string, h *tar.Header, body io.Reader) error {
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return errs.New(errs.InvalidArgument, "the target itself can only be a folder")
		}
		return nil
	}
	if h.Typeflag == tar.TypeDir {
		return u.folder(name, h)
	}
	dir, base, err := u.in(name)
	if err != nil {
		return err
	}
	if err := replaceable(dir, base); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		if content.Sparse(h) {
			return errs.New(errs.Unsupported, "sparse files are not copied: a few bytes of them fill a disk")
		}
		return u.file(dir, base, h, body)
	case tar.TypeSymlink:
		return u.link(name, h, func(temp string) error { return u.root.Symlink(h.Linkname, temp) })
	case tar.TypeLink:
		target, err := cleanName(h.Linkname)
		if err != nil {
			return err
		}
		return u.link(name, h, func(temp string) error { return u.root.Link(target, temp) })
	default:
		return errs.New(errs.Unsupported, "entries of type %q are not copied", h.Typeflag)
	}
}

// replaceable refuses to put something where a device or the like is: programs
// have it by its name.
func replaceable(dir *os.Root, base string) error {
	info, err := dir.Lstat(base)
	if err != nil {
		return nil //nolint:nilerr // nothing there; what else is wrong, writing says
	}
	if kind := info.Mode().Type(); kind&(fs.ModeDevice|fs.ModeNamedPipe|fs.ModeSocket) != 0 {
		return errs.New(errs.FailedPrecondition, "a device, pipe or socket is there, and is not replaced: remove it first, or write to it with exec")
	}
	return nil
}

func (u *unpacker) folder(name string, h *tar.Header) error {
	info, err := u.root.Stat(name)
	if err == nil {
		if !info.IsDir() {
			return errs.New(errs.AlreadyExists, "a folder cannot replace a file")
		}
		return nil
	}
	if err := u.root.MkdirAll(name, 0o755); err != nil {
		return err
	}
	if err := u.own(u.root, name, h); err != nil {
		return err
	}
	u.open = append(u.open, folder{name, u.mode(h), h.ModTime})
	return nil
}

// leave finishes the folders that next is not below.
func (u *unpacker) leave(next string) error {
	var all error
	for len(u.open) > 0 {
		f := u.open[len(u.open)-1]
		if next != "" && strings.HasPrefix(next, f.name+"/") {
			break
		}
		u.open = u.open[:len(u.open)-1]
		err := u.root.Chtimes(f.name, f.time, f.time)
		if err == nil {
			err = u.root.Chmod(f.name, f.mode)
		}
		if err != nil {
			all = errors.Join(all, fmt.Errorf("unpack %.200q: %w", f.name, osError(err)))
		}
	}
	return all
}

func (u *unpacker) file(dir *os.Root, name string, h *tar.Header, body io.Reader) (err error) {
	temp := tempName(name)
	f, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), dir.Remove(temp))
		}
	}()
	holes := content.NewHoles(f)
	n, err := io.CopyBuffer(holes, body, u.buf)
	u.stats.Bytes += n
	if err != nil {
		return err
	}
	if err := holes.Finish(); err != nil {
		return err
	}
	if err := u.own(dir, temp, h); err != nil {
		return err
	}
	// After the owner: a change of owner clears setuid.
	if err := f.Chmod(u.mode(h)); err != nil {
		return err
	}
	if err := dir.Chtimes(temp, h.ModTime, h.ModTime); err != nil {
		return err
	}
	if err := dir.Rename(temp, name); err != nil {
		return err
	}
	return f.Close()
}

// link makes a link beside its name and moves it there.
func (u *unpacker) link(name string, h *tar.Header, make func(temp string) error) error {
	temp := tempName(name)
	if err := make(temp); err != nil {
		return err
	}
	err := u.own(u.root, temp, h)
	if err == nil && h.Typeflag == tar.TypeSymlink {
		err = content.LinkTime(u.root, temp, h.ModTime)
	}
	if err == nil {
		err = u.root.Rename(temp, name)
	}
	// Renaming one hard link over another of the same file does nothing and
	// leaves both, so the temporary name may still be there.
	if e := u.root.Remove(temp); e != nil && !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return errors.Join(err, u.forgetDir())
}

func (u *unpacker) own(dir *os.Root, name string, h *tar.Header) error {
	if u.opt.KeepOwner {
		return dir.Lchown(name, h.Uid, h.Gid)
	}
	if u.opt.Owner == nil {
		return nil
	}
	return dir.Lchown(name, u.opt.Owner.UID, u.opt.Owner.GID)
}

func (u *unpacker) mode(h *tar.Header) fs.FileMode {
	m := fs.FileMode(h.Mode) & fs.ModePerm
	if u.opt.SpecialBits {
		if h.Mode&0o4000 != 0 {
			m |= fs.ModeSetuid
		}
		if h.Mode&0o2000 != 0 {
			m |= fs.ModeSetgid
		}
		if h.Mode&0o1000 != 0 {
			m |= fs.ModeSticky
		}
	}
	return m
}

// tempName is a name beside name that nobody else uses.
func tempName(name string) string {
	return path.Join(path.Dir(name), fmt.Sprintf(".brood-%016x", rand.Uint64())) //nolint:gosec // a name beside others, no secret
}

func isErrno(err error, e syscall.Errno) bool { return errors.Is(err, e) }
