package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// limits bound what a tarball may become.
type limits struct {
	files int
	bytes int64
}

// packageLimits are about five times what the largest package (Node) needs.
var packageLimits = limits{files: 30_000, bytes: 1 << 30}

// unpack writes the files of an npm tarball below dir, which is inside root.
// The first component of each name is dropped, as npm does. Only folders and
// plain files are taken; anything else, and any name that would lead outside
// of dir, is an error. keep says which files are wanted.
func unpack(tarball io.Reader, root *os.Root, dir string, max limits, keep func(name string) bool) error {
	if err := root.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	below, err := root.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer below.Close()
	zip, err := gzip.NewReader(tarball)
	if err != nil {
		return fmt.Errorf("read the tarball: %w", err)
	}
	// The headers count too: a tarball of nothing but headers ends as well.
	left := &io.LimitedReader{R: zip, N: max.bytes + int64(max.files)*4096}
	files := tar.NewReader(left)
	for n := 0; ; n++ {
		h, err := files.Next()
		if errors.Is(err, io.EOF) && left.N > 0 {
			return nil
		}
		if err != nil && left.N > 0 {
			return fmt.Errorf("read the tarball: %w", err)
		}
		if err != nil || n == max.files || h.Size > max.bytes {
			return fmt.Errorf("the tarball holds more than %d files or %d MB", max.files, max.bytes>>20)
		}
		if err := unpackEntry(files, h, below, keep); err != nil {
			return fmt.Errorf("%q in the tarball: %w", h.Name, err)
		}
		max.bytes -= h.Size
	}
}

func unpackEntry(content io.Reader, h *tar.Header, below *os.Root, keep func(string) bool) error {
	switch h.Typeflag {
	case tar.TypeXGlobalHeader:
		return nil
	case tar.TypeReg, tar.TypeDir:
	default:
		return errors.New("is neither a file nor a folder")
	}
	if strings.Contains(h.Name, "\\") || path.IsAbs(h.Name) {
		return errors.New("leads outside of the package")
	}
	_, name, _ := strings.Cut(strings.TrimPrefix(h.Name, "./"), "/")
	if name == "" {
		if h.Typeflag == tar.TypeDir {
			return nil // the package's own folder
		}
		return errors.New("is not inside a folder")
	}
	if !filepath.IsLocal(name) {
		return errors.New("leads outside of the package")
	}
	if h.Typeflag == tar.TypeDir || !keep(name) {
		return nil // folders come with their files
	}
	if err := below.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if h.FileInfo().Mode()&0o111 != 0 {
		mode = 0o755
	}
	f, err := below.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}
