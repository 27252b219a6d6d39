package content

import (
	"bytes"
	"io"
	"io/fs"
	"os"
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
)

// Reader returns a file's content and its size. Files of kernels say 0 or a
// page whatever is in them: those are read to their end here.
func Reader(f *os.File, info fs.FileInfo) (io.Reader, int64, error) {
	if !pseudo(info) {
		return f, info.Size(), nil
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
