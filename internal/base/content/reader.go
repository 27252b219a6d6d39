package content

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"brood/internal/base/errs"
)

const (
	// maxPseudo bounds what is read of a file that does not know its size: it
	// is held in memory. The largest of /proc, such as kallsyms, have 10 MB.
	maxPseudo = 64 << 20
	// maxClaim is up to where a size is doubted when there are no blocks: the
	// files of sysfs say they have a page.
	maxClaim = 64 << 10
	// maxWhole is up to where a file is read before its size is said: one that
	// becomes shorter meanwhile is no matter then.
	maxWhole = 256 << 10
)

// Reader returns a file's content and its size. Files of kernels say 0 or a
// page whatever is in them: those are read to their end here, and small ones are
// read as well.
func Reader(f *os.File, info fs.FileInfo) (io.Reader, int64, error) {
	switch size := info.Size(); {
	case pseudo(info):
	case size <= maxWhole:
		b := make([]byte, size)
		n, err := io.ReadFull(f, b)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil
		}
		return bytes.NewReader(b[:n]), int64(n), err
	default:
		return f, size, nil
	}
	b, err := io.ReadAll(io.LimitReader(f, maxPseudo+1))
	if err != nil {
		return nil, 0, err
	}
	if len(b) > maxPseudo {
		return nil, 0, errs.New(errs.Unsupported, "%s does not say how large it is and has more than %d bytes: copy what you need of it by a command", f.Name(), maxPseudo)
	}
	return bytes.NewReader(b), int64(len(b)), nil
}

// pseudo says whether a file's size cannot be relied on. Small files that a
// file system keeps beside their names look so too, and lose nothing.
func pseudo(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return info.Size() == 0 || ok && st.Blocks == 0 && info.Size() <= maxClaim
}

// Sparse says that an entry of a tar stream stands for more bytes than the
// stream has: a few of them fill a disk, or keep a reader busy for years.
// Nothing of brood's makes such entries.
func Sparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// Vanished says that an error is that of a file which is there no more, or of
// a process whose files these were: what is listed may be gone when it is read.
func Vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// Kind is what a file is that has no content to copy: a device, a pipe or a
// socket; empty for all others.
func Kind(m fs.FileMode) string {
	switch {
	case m&fs.ModeDevice != 0:
		return "device"
	case m&fs.ModeNamedPipe != 0:
		return "pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeIrregular != 0:
		return "special file"
	}
	return ""
}
