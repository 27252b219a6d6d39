package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"brood/internal/base/content"
	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/sandbox/image/erofs"
)

// tarball is a tar that becomes an image, with owners as it says.
type tarball struct {
	path     string
	progress func(done, total int64)
}

func (t *tarball) fingerprint(context.Context) (fp digest.Digest, size int64, settled bool, err error) {
	began := time.Now()
	fi, err := os.Stat(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, false, errs.New(errs.NotFound, "tar %s: %w", t.path, err)
	}
	if err != nil {
		return "", 0, false, errs.New(errs.PermissionDenied, "tar %s: %w", t.path, err)
	}
	if !fi.Mode().IsRegular() {
		return "", 0, false, invalid("tar %s is no file", t.path)
	}
	st := statOf(fi)
	line := fmt.Sprint(fi.Size(), fi.ModTime().UnixNano(), st.ctime.UnixNano(), st.id)
	return digest.Of([]byte(line)), fi.Size(), began.Sub(st.ctime) > settleTime, nil
}

// counter counts what is read of the file itself, packed or not.
type counter struct {
	r    io.Reader
	told *teller
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.told.add(n)
	return n, err
}

func (t *tarball) fill(ctx context.Context, w *erofs.Writer, n *notes) (*erofs.Node, error) {
	f, err := os.Open(t.path)
	if err != nil {
		return nil, errs.New(errs.PermissionDenied, "tar %s: %w", t.path, err)
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if fi.Size() == 0 {
		return nil, invalid("tar %s has no entries", t.path)
	}
	told := &teller{tell: t.progress, total: fi.Size()}
	plain, done, err := unpacked(&ctxReader{ctx: ctx, r: &counter{r: f, told: told}})
	if err != nil {
		return nil, invalid("tar %s: %w", t.path, err)
	}
	defer done()
	tree := newTree(w, n)
	if err := tree.readAll(plain); err != nil {
		switch code := errs.CodeOf(err); {
		case code == errs.DataLoss:
			err = fmt.Errorf("tar %s: %w", t.path, err)
		case code == errs.Internal && !isDisk(err):
			err = invalid("tar %s: %w", t.path, err)
		}
		return nil, err
	}
	if tree.root.Child("oci-layout") != nil || tree.root.Child("manifest.json") != nil && tree.root.Child("repositories") != nil {
		return nil, errs.New(errs.Unsupported, "tar %s is an image archive with layers, as docker save writes: use a tar of the files, as docker export writes", t.path)
	}
	return tree.root, nil
}

// unpacked looks at the first bytes, not the name, and takes the packing off.
func unpacked(r io.Reader) (io.Reader, func(), error) {
	b := bufio.NewReaderSize(r, 1<<20)
	head, err := b.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, nil, err
		}
		return z, func() { _ = z.Close() }, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	case bytes.HasPrefix(head, []byte("BZh")):
		return bzip2.NewReader(b), func() {}, nil
	case bytes.HasPrefix(head, []byte{0xfd, '7', 'z', 'X', 'Z'}):
		return nil, nil, errs.New(errs.Unsupported, "it is packed with xz: unpack it or pack it with zstd or gzip")
	}
	return b, func() {}, nil
}

// tree is an image's tree that tar entries are put into, as tar would into a
// folder: what comes later wins, and folders that are symlinks are followed,
// inside the image only.
type tree struct {
	root *erofs.Node
	w    *erofs.Writer
	n    *notes
}

func newTree(w *erofs.Writer, n *notes) *tree { return &tree{root: erofs.NewDir(0o755), w: w, n: n} }

func (t *tree) readAll(r io.Reader) error {
	entries := content.NewTar(r)
	any := false
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			if !any {
				return invalid("it has no entries")
			}
			return nil
		}
		if err != nil {
			return err
		}
		any = true
		if err := t.put(h, entries); err != nil {
			return fmt.Errorf("entry %.200q: %w", h.Name, err)
		}
	}
}

func (t *tree) put(h *tar.Header, data io.Reader) error {
	parts, err := split(h.Name)
	if err != nil {
		return err
	}
	node, err := t.node(h, data)
	if err != nil || node == nil {
		return err
	}
	if h.Typeflag != tar.TypeLink {
		if h.Uid < 0 || h.Gid < 0 || int64(h.Uid) > math.MaxUint32 || int64(h.Gid) > math.MaxUint32 {
			return invalid("owner %d:%d is out of range", h.Uid, h.Gid)
		}
		node.UID, node.GID, node.Mtime = uint32(h.Uid), uint32(h.Gid), h.ModTime
		if h.ModTime.Unix() < 0 {
			node.Mtime = time.Time{}
		}
		for k := range h.PAXRecords {
			if name, ok := strings.CutPrefix(k, "SCHILY.xattr."); ok {
				t.n.add("%s has the attribute %s, which is left out", h.Name, name)
			}
		}
	}
	if len(parts) == 0 {
		if node.Type != erofs.Dir {
			return invalid("the root of an image is a folder")
		}
		t.root.Mode, t.root.UID, t.root.GID, t.root.Mtime = node.Mode, node.UID, node.GID, node.Mtime
		return nil
	}
	dir, err := t.dir(parts[:len(parts)-1])
	if err != nil {
		return err
	}
	name := parts[len(parts)-1]
	if old := dir.Child(name); old != nil && old.Type == erofs.Dir && node.Type == erofs.Dir {
		old.Mode, old.UID, old.GID, old.Mtime = node.Mode, node.UID, node.GID, node.Mtime
		return nil
	}
	if err := dir.Add(name, node); err != nil {
		return invalid("%w", err)
	}
	return nil
}

// node makes the inode of an entry; nil for what is left out.
func (t *tree) node(h *tar.Header, data io.Reader) (*erofs.Node, error) {
	mode := uint16(h.Mode & 0o7777)
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		return t.w.NewFile(mode, data)
	case tar.TypeDir:
		return erofs.NewDir(mode), nil
	case tar.TypeSymlink:
		n, err := erofs.NewSymlink(h.Linkname)
		if err != nil {
			return nil, invalid("%w", err)
		}
		return n, nil
	case tar.TypeLink:
		return t.linked(h.Linkname)
	case tar.TypeXGlobalHeader:
		return nil, nil
	case tar.TypeChar, tar.TypeBlock:
		t.n.add("%s is a device and is left out", h.Name)
	case tar.TypeFifo:
		t.n.add("%s is a named pipe and is left out", h.Name)
	default:
		t.n.add("%s is of an unknown type and is left out", h.Name)
	}
	return nil, nil
}

// linked finds what a hard link names.
func (t *tree) linked(name string) (*erofs.Node, error) {
	parts, err := split(name)
	if err != nil {
		return nil, err
	}
	if len(parts) > 0 {
		dir, err := t.dir(parts[:len(parts)-1])
		if err != nil {
			return nil, err
		}
		if n := dir.Child(parts[len(parts)-1]); n != nil && n.Type != erofs.Dir {
			return n, nil
		}
	}
	return nil, invalid("it is a hard link to %.200q, which does not come before it", name)
}

// split returns the parts of an entry's name. A name that leaves the root is
// refused, not cut: whoever wrote it meant something else.
func split(name string) ([]string, error) {
	var parts []string
	for p := range strings.SplitSeq(name, "/") {
		switch p {
		case "", ".":
		case "..":
			return nil, invalid("its name goes up with ..")
		default:
			parts = append(parts, p)
		}
	}
	return parts, nil
}

// maxFollow bounds symlinks on one path, as the kernel does.
const maxFollow = 40

// dir returns the folder at parts, making what is missing.
func (t *tree) dir(parts []string) (*erofs.Node, error) {
	stack := []*erofs.Node{t.root}
	for follows := 0; len(parts) > 0; {
		name := parts[0]
		parts = parts[1:]
		here := stack[len(stack)-1]
		switch name {
		case "", ".":
			continue
		case "..":
			stack = stack[:max(1, len(stack)-1)]
			continue
		}
		next := here.Child(name)
		if next == nil {
			next = erofs.NewDir(0o755)
			if err := here.Add(name, next); err != nil {
				return nil, invalid("%w", err)
			}
		}
		switch next.Type {
		case erofs.Dir:
			stack = append(stack, next)
		case erofs.Symlink:
			if follows++; follows > maxFollow {
				return nil, invalid("too many symlinks on the way")
			}
			if path.IsAbs(next.Target()) {
				stack = stack[:1]
			}
			parts = append(strings.Split(next.Target(), "/"), parts...)
		default:
			return nil, invalid("%q on the way is a file", name)
		}
	}
	return stack[len(stack)-1], nil
}

// isDisk says whether an error comes from writing, not from the source.
func isDisk(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EFBIG} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
