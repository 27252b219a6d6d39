package imagecheck

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"brood/internal/base/errs"
)

// Names of the files of an image.
const (
	stateName = "checkpoint.img"
	metaName  = "pages_meta.img"
	pagesName = "pages.img"
)

// Check returns DataLoss when the image in dir is not whole, and says what is
// missing.
func Check(dir string) error {
	pages, err := os.Stat(filepath.Join(dir, pagesName))
	if err != nil {
		return broken(pagesName, err)
	}
	if err := withFile(dir, stateName, checkState); err != nil {
		return err
	}
	var s summary
	err = withFile(dir, metaName, func(r io.Reader, size int64) error {
		s, err = checkMeta(r, size)
		return err
	})
	if err != nil {
		return err
	}
	if s.known && s.committed != uint64(pages.Size()) {
		return errs.New(errs.DataLoss, "%s has %d bytes and should have %d", pagesName, pages.Size(), s.committed)
	}
	return nil
}

func withFile(dir, name string, check func(r io.Reader, size int64) error) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return broken(name, err)
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err == nil {
		err = check(f, st.Size())
	}
	return broken(name, err)
}

// broken names the file; a missing one and a bad one are both lost data.
func broken(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errCut), errors.Is(err, errBad):
		return errs.New(errs.DataLoss, "%s of the runtime's image is not whole: %w", name, err)
	}
	return errs.New(errs.Internal, "%s of the runtime's image: %w", name, err)
}

var (
	errCut = errors.New("it ends too early")
	errBad = errors.New("it holds what cannot be")
)

// The head of checkpoint.img: eight bytes of magic, a length, as many bytes
// of JSON, and a keyed SHA-256 of all that, whose key is empty.
const (
	magic       = "gVisorSF"
	maxMetadata = 16 << 20
)

func checkState(r io.Reader, size int64) error {
	head := make([]byte, len(magic)+8)
	if _, err := io.ReadFull(r, head); err != nil {
		return cut(err)
	}
	n := binary.BigEndian.Uint64(head[len(magic):])
	if string(head[:len(magic)]) != magic || n > maxMetadata || n > uint64(size) {
		return errBad
	}
	metadata := make([]byte, n)
	sum := make([]byte, sha256.Size)
	if _, err := io.ReadFull(r, metadata); err != nil {
		return cut(err)
	}
	if _, err := io.ReadFull(r, sum); err != nil {
		return cut(err)
	}
	h := hmac.New(sha256.New, nil)
	h.Write(head)
	h.Write(metadata)
	if !bytes.Equal(h.Sum(nil), sum) {
		return errBad
	}
	var facts map[string]string
	if err := json.Unmarshal(metadata, &facts); err != nil {
		return errBad
	}
	if facts["compression"] != "none" {
		return nil // packed: its reader will say
	}
	w := newWalker(r, size-int64(len(head))-int64(n)-sha256.Size)
	graphs, err := w.all()
	if err == nil && graphs < 2 { // processor features, then the kernel
		err = errCut
	}
	return err
}

// summary is what pages_meta.img says about pages.img.
type summary struct {
	known     bool   // whether the ranges were found
	committed uint64 // bytes of pages that must be there
}

func checkMeta(r io.Reader, size int64) (summary, error) {
	w := newWalker(r, size)
	graphs, err := w.all()
	if err == nil && graphs < 2 { // the memory, then the list of other memories
		err = errCut
	}
	return summary{known: w.sawRanges, committed: w.committed}, err
}

func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errCut
	}
	return err
}
