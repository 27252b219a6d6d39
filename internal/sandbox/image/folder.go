package image

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/sandbox/image/erofs"
)

// folder is a folder of this machine that becomes an image. Its files belong
// to root inside: who owns them here means nothing there.
type folder struct {
	path     string
	home     string // brood's own folder is never part of an image
	progress func(done, total int64)

	size  int64 // found by fingerprint
	links map[fileID]*erofs.Node
}

// settleTime is how old the newest change must be for a later one to show:
// file times move in steps of some milliseconds.
const settleTime = 100 * time.Millisecond

// visit sees one entry; dir is its folder, for opening it.
type visit func(dir *os.Root, rel string, fi fs.FileInfo, st stat) error

// walk visits everything below the folder in the order of names, folders
// before what is in them, without following symlinks and without leaving the
// folder's filesystem. left is told what is not visited.
func (f *folder) walk(ctx context.Context, see visit, left func(format string, args ...any)) error {
	if fi, err := os.Stat(f.path); err == nil && !fi.IsDir() {
		return invalid("%s is no folder: a tar is written tar:%s", f.path, f.path)
	}
	root, err := os.OpenRoot(f.path)
	if err != nil {
		return f.refusal(err)
	}
	defer func() { _ = root.Close() }()
	fi, err := root.Lstat(".")
	if err != nil {
		return err
	}
	st := statOf(fi)
	if err := see(root, ".", fi, st); err != nil {
		return err
	}
	own := fileID{}
	if fi, err := os.Stat(f.home); err == nil {
		own = statOf(fi).id
	}
	return f.below(ctx, root, ".", &walker{see: see, left: left, dev: st.id.dev, own: own})
}

type walker struct {
	see  visit
	left func(format string, args ...any)
	dev  uint64
	own  fileID
}

func (f *folder) below(ctx context.Context, dir *os.Root, rel string, w *walker) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	names, err := namesIn(dir)
	if err != nil {
		return f.refusal(err)
	}
	for _, name := range names {
		p := path.Join(rel, name)
		fi, err := dir.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since it was listed
		}
		if err != nil {
			return f.refusal(err)
		}
		st := statOf(fi)
		if fi.IsDir() && (st.id == w.own || st.id.dev != w.dev) {
			if st.id == w.own {
				w.left("%s is brood's own folder and is left out", p)
			} else {
				w.left("%s is on another filesystem and is left out", p)
			}
			continue
		}
		if err := w.see(dir, p, fi, st); err != nil {
			return err
		}
		if !fi.IsDir() {
			continue
		}
		sub, err := dir.OpenRoot(name)
		if err != nil {
			return f.refusal(err)
		}
		err = f.below(ctx, sub, p, w)
		if err := errors.Join(err, sub.Close()); err != nil {
			return err
		}
	}
	return nil
}

func namesIn(dir *os.Root) ([]string, error) {
	d, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	slices.Sort(names)
	return names, errors.Join(err, d.Close())
}

// refusal says what to do about a folder that cannot be read.
func (f *folder) refusal(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errs.New(errs.NotFound, "folder %s: %w", f.path, err)
	case errors.Is(err, fs.ErrPermission):
		return errs.New(errs.PermissionDenied, "folder %s: %w: make it readable or leave it out", f.path, err)
	}
	return err
}

func (f *folder) fingerprint(ctx context.Context) (fp digest.Digest, size int64, settled bool, err error) {
	sum := digest.NewWriter()
	began := time.Now()
	settled = true
	f.size = 0
	see := func(dir *os.Root, rel string, fi fs.FileInfo, st stat) error {
		line := append([]byte(rel), 0)
		target := ""
		if fi.Mode()&fs.ModeSymlink != 0 {
			target, _ = dir.Readlink(path.Base(rel))
		}
		line = append(append(line, target...), 0)
		for _, v := range []int64{int64(st.mode), fi.Size(), fi.ModTime().UnixNano(), st.ctime.UnixNano(), int64(st.id.dev), int64(st.id.ino)} {
			line = binary.BigEndian.AppendUint64(line, uint64(v))
		}
		_, _ = sum.Write(line) // never fails
		if fi.Mode().IsRegular() {
			f.size += fi.Size()
		}
		settled = settled && began.Sub(st.ctime) > settleTime
		return nil
	}
	err = f.walk(ctx, see, func(string, ...any) {})
	return sum.Digest(), f.size, settled, err
}

func (f *folder) fill(ctx context.Context, w *erofs.Writer, n *notes) (*erofs.Node, error) {
	f.links = map[fileID]*erofs.Node{}
	dirs := map[string]*erofs.Node{}
	told := teller{tell: f.progress, total: f.size}
	see := func(dir *os.Root, rel string, fi fs.FileInfo, st stat) error {
		node, err := f.node(ctx, w, dir, rel, fi, st, n)
		if err != nil || node == nil {
			return err
		}
		if fi.Mode().IsRegular() {
			told.add(int(fi.Size()))
		}
		if node.Type == erofs.Dir {
			dirs[rel] = node
		}
		if rel == "." {
			return nil
		}
		if err := dirs[path.Dir(rel)].Add(path.Base(rel), node); err != nil {
			return invalid("folder %s: %s: %w", f.path, rel, err)
		}
		return nil
	}
	if err := f.walk(ctx, see, n.add); err != nil {
		return nil, err
	}
	root := dirs["."]
	if root.Child("oci-layout") != nil && root.Child("index.json") != nil {
		return nil, errs.New(errs.Unsupported, "folder %s is an OCI layout: unpack it, or use a tar such as docker export writes", f.path)
	}
	return root, nil
}

// node makes the inode of one entry; nil for what is left out.
func (f *folder) node(ctx context.Context, w *erofs.Writer, dir *os.Root, rel string, fi fs.FileInfo, st stat, n *notes) (node *erofs.Node, err error) {
	switch {
	case fi.IsDir():
		node = erofs.NewDir(st.mode)
		if rel == "." {
			node.Mode = 0o755 // of a temporary folder it is 0700, which no root is
		}
	case fi.Mode()&fs.ModeSymlink != 0:
		target, err := dir.Readlink(path.Base(rel))
		if err != nil {
			return nil, f.refusal(err)
		}
		if node, err = erofs.NewSymlink(target); err != nil {
			return nil, invalid("folder %s: %s: %w", f.path, rel, err)
		}
	case fi.Mode().IsRegular():
		if known := f.links[st.id]; known != nil {
			return known, nil
		}
		if node, err = f.file(ctx, w, dir, rel, st, n); err != nil || node == nil {
			return nil, err
		}
		if st.links > 1 {
			f.links[st.id] = node
		}
	default:
		n.add("%s is a %s and is left out", rel, typeName(fi.Mode()))
		return nil, nil
	}
	node.Mtime = fi.ModTime()
	return node, nil
}

func (f *folder) file(ctx context.Context, w *erofs.Writer, dir *os.Root, rel string, st stat, n *notes) (*erofs.Node, error) {
	// Another process may put a pipe or a symlink in its place meanwhile.
	file, err := dir.OpenFile(path.Base(rel), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) {
		n.add("%s went away while the folder was read", rel)
		return nil, nil
	}
	if err != nil {
		return nil, f.refusal(err)
	}
	defer func() { _ = file.Close() }()
	now, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if statOf(now).id != st.id || !now.Mode().IsRegular() {
		n.add("%s was replaced while the folder was read and is left out", rel)
		return nil, nil
	}
	return w.NewFile(st.mode, &ctxReader{ctx: ctx, r: file})
}

func typeName(m fs.FileMode) string {
	switch {
	case m&fs.ModeDevice != 0:
		return "device"
	case m&fs.ModeNamedPipe != 0:
		return "named pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	}
	return "special file"
}
