package client

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"brood/internal/base/content"
	"brood/internal/base/errs"
	"brood/internal/base/id"
)

// writeTar writes the file tree at local, whose top has the given name; "." is
// what the folder holds. skip is told what has no content to copy, and what was
// gone when its turn came.
func writeTar(w io.Writer, local, name string, skip func(string)) error {
	tw := tar.NewWriter(w)
	local = filepath.Clean(local)
	err := filepath.WalkDir(local, func(p string, d fs.DirEntry, err error) error {
		rel, e := filepath.Rel(local, p)
		switch {
		case e != nil:
			return e
		case err == nil && content.Kind(d.Type()) != "":
			skip(p)
			return nil
		case err == nil:
			err = writeEntry(tw, p, path.Join(name, filepath.ToSlash(rel)), d)
		}
		if rel != "." && content.Vanished(err) {
			skip(p) // somebody works there while it is copied
			return nil
		}
		return err
	})
	return errors.Join(err, tw.Close())
}

func writeEntry(tw *tar.Writer, p, name string, d fs.DirEntry) error {
	st, err := d.Info()
	if err != nil {
		return err
	}
	link := ""
	if st.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(p); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(st, link)
	if err != nil {
		return err
	}
	h.Name, h.Format = name, tar.FormatPAX // sub-second times, long names
	h.Uname, h.Gname = "", ""              // names of this machine mean nothing inside
	h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}
	if d.IsDir() {
		h.Name += "/"
	}
	if !st.Mode().IsRegular() {
		return tw.WriteHeader(h)
	}
	return writeFile(tw, p, h)
}

func writeFile(tw *tar.Writer, p string, h *tar.Header) error {
	// It may be a pipe by now, which is not waited for.
	f, err := os.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	r, size, err := content.Reader(f, st)
	if err != nil {
		return err
	}
	h.Size = size
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	if n, err := io.CopyN(tw, r, h.Size); err != nil {
		if errors.Is(err, io.EOF) {
			return errs.New(errs.FailedPrecondition, "%.200s became shorter while it was read (%d of %d bytes): copy it when nobody writes to it", p, n, h.Size)
		}
		return err
	}
	return nil
}

// readTar unpacks what a sandbox sent into root. The first entry is the top of
// the tree: with a name it and all below go by that name, and "." puts what it
// holds directly into root. Every entry must be the top or below it.
func readTar(r io.Reader, root *os.Root, name string) (Copied, error) {
	u := unpacker{root: root, name: name}
	tr := content.NewTar(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return u.copied, err
		}
		if err := u.entry(h, tr); err != nil {
			return u.copied, err
		}
		u.copied.Entries++
	}
	if u.top == "" {
		return u.copied, errs.New(errs.DataLoss, "the daemon sent no file")
	}
	return u.copied, u.finish()
}

type unpacker struct {
	root *os.Root
	name string // what the top becomes; empty: as it is
	top  string // the first entry's name
	dirs []tar.Header

	copied Copied
}

// place says where an entry goes.
func (u *unpacker) place(h *tar.Header) (string, error) {
	clean := path.Clean(h.Name)
	if !filepath.IsLocal(clean) || strings.ContainsRune(clean, 0) {
		return "", errs.New(errs.FailedPrecondition, "refused %.200q, which lies outside of what was asked for", h.Name)
	}
	if u.top == "" {
		u.top = clean
		if u.name == "" {
			u.name = clean
		}
		if strings.Contains(clean, "/") {
			return "", errs.New(errs.DataLoss, "the first file sent is %.200q, which is no single name", h.Name)
		}
	}
	if clean == u.top {
		return u.name, nil
	}
	below, ok := strings.CutPrefix(clean, u.top+"/")
	if u.top == "." {
		below, ok = clean, true
	}
	if !ok {
		return "", errs.New(errs.FailedPrecondition, "refused %.200q, which lies outside of what was asked for", h.Name)
	}
	return path.Join(u.name, below), nil
}

func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	name, err := u.place(h)
	if err != nil {
		return err
	}
	if content.Sparse(h) {
		return errs.New(errs.Unsupported, "%.200q is a sparse file, which the daemon does not send", h.Name)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.dir(name, h)
	case tar.TypeReg:
		return u.file(name, h, r)
	case tar.TypeSymlink:
		return u.symlink(name, h)
	case tar.TypeLink:
		return u.link(name, h)
	}
	return errs.New(errs.Unsupported, "%.200q is a device, pipe or socket, which cannot be copied", h.Name)
}

func (u *unpacker) dir(name string, h *tar.Header) error {
	if name == "." {
		return nil // it is the caller's
	}
	if st, err := u.root.Lstat(name); err == nil && !st.IsDir() {
		return errs.New(errs.FailedPrecondition, "%.200s is in the way of a folder", name)
	}
	if err := u.root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	kept := *h
	kept.Name = name
	u.dirs = append(u.dirs, kept)
	return nil
}

// room says whether there may be what is not a folder.
func (u *unpacker) room(name string) error {
	if name == "." {
		return errs.New(errs.FailedPrecondition, "what was asked for is no folder")
	}
	if st, err := u.root.Lstat(name); err == nil && st.IsDir() {
		return errs.New(errs.FailedPrecondition, "the folder %.200s is in the way of a file", name)
	}
	return nil
}

// clear makes room.
func (u *unpacker) clear(name string) error {
	if err := u.room(name); err != nil {
		return err
	}
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (u *unpacker) file(name string, h *tar.Header, r io.Reader) error {
	if err := u.room(name); err != nil {
		return err
	}
	// What is there stays until all has come.
	temp := path.Join(path.Dir(name), ".brood-"+id.Random(8))
	f, err := u.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	holes := content.NewHoles(f)
	n, err := io.Copy(holes, r)
	u.copied.Bytes += uint64(n)
	if err = errors.Join(err, holes.Finish(), f.Close()); err == nil {
		err = u.attributes(temp, h)
	}
	if err == nil {
		err = u.root.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, u.root.Remove(temp))
	}
	return nil
}

func (u *unpacker) symlink(name string, h *tar.Header) error {
	if err := u.clear(name); err != nil {
		return err
	}
	if err := u.root.Symlink(h.Linkname, name); err != nil {
		return err
	}
	return content.LinkTime(u.root, name, h.ModTime)
}

// link copies what a hard link names: another file of the same tree.
func (u *unpacker) link(name string, h *tar.Header) error {
	target, err := u.place(&tar.Header{Name: h.Linkname})
	if err != nil {
		return err
	}
	if err := u.clear(name); err != nil {
		return err
	}
	return u.root.Link(target, name)
}

// finish gives folders their modes and times, the deepest first: writing into
// them changes their times and needs their modes.
func (u *unpacker) finish() error {
	for i := len(u.dirs) - 1; i >= 0; i-- {
		if err := u.attributes(u.dirs[i].Name, &u.dirs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) attributes(name string, h *tar.Header) error {
	// Setuid and setgid stay behind: what a sandbox sends is not trusted to run
	// as the one who copies it.
	mode := fs.FileMode(h.Mode).Perm()
	if h.Mode&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	if err := u.root.Chmod(name, mode); err != nil {
		return err
	}
	return u.root.Chtimes(name, h.ModTime, h.ModTime)
}
