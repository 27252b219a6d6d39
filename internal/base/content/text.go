package content

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"brood/internal/base/errs"
)

// MaxText bounds what ReadFile reads where a caller knows no better: what
// people and their package managers write is far below.
const MaxText = 64 << 20

// ReadFile returns the bytes of a regular file, links to one included. shown
// is its name in messages. What is none (a pipe, a device, a socket, a folder)
// and what has more than most bytes is an InvalidArgument that says so; a pipe
// is not waited for. All else that fails is an error of os, which callers ask
// with errors.Is. It takes four system calls: workspaces have many such files.
func ReadFile(path, shown string, most int64) ([]byte, error) {
	return readRegular(path, shown, func(size int64) (int64, error) {
		if size > most {
			return 0, errs.New(errs.InvalidArgument, "%s has %d MiB: such a file has at most %d", shown, size>>20, most>>20)
		}
		return size, nil
	})
}

// ReadHead is ReadFile for the first bytes of a file of any size.
func ReadHead(path, shown string, most int64) ([]byte, error) {
	return readRegular(path, shown, func(size int64) (int64, error) { return min(size, most), nil })
}

// readRegular reads as many bytes as wanted says of a file's size.
func readRegular(path, shown string, wanted func(size int64) (int64, error)) ([]byte, error) {
	fd, err := openAtOnce(path)
	if err != nil {
		return nil, whyNot(path, shown, err)
	}
	defer func() { _ = syscall.Close(fd) }() // nothing was written: there is nothing to lose
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return nil, Regular(modeOf(st.Mode), shown)
	}
	size, err := wanted(st.Size)
	if err != nil {
		return nil, err
	}
	return fill(fd, path, make([]byte, size))
}

// whyNot is the error of a file that could not be opened. A socket, for one,
// cannot be.
func whyNot(path, shown string, err error) error {
	if errors.Is(err, fs.ErrNotExist) { // the usual one, which costs no more calls
		return err
	}
	if info, serr := os.Stat(path); serr == nil {
		if other := Regular(info.Mode(), shown); other != nil {
			return other
		}
	}
	return err
}

// Dangling refuses a link that leads nowhere, where os says that there is
// nothing: nil when there really is.
func Dangling(path, shown string) error {
	to, err := os.Readlink(path)
	if err != nil {
		return nil //nolint:nilerr // it is no link, or not there
	}
	return errs.New(errs.InvalidArgument, "%s is a link to %q, which is not there: put the file there, or take the link away", shown, to)
}

// modeOf is the kind of file that a mode of the system says.
func modeOf[M ~uint16 | ~uint32](mode M) fs.FileMode {
	switch mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		return fs.ModeDir
	case syscall.S_IFIFO:
		return fs.ModeNamedPipe
	case syscall.S_IFSOCK:
		return fs.ModeSocket
	case syscall.S_IFCHR, syscall.S_IFBLK:
		return fs.ModeDevice
	}
	return fs.ModeIrregular
}

// fill reads until b is full; a file that became shorter is no error.
func fill(fd int, path string, b []byte) ([]byte, error) {
	at := 0
	for at < len(b) {
		n, err := syscall.Read(fd, b[at:])
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return b[:at], nil
		}
		at += n
	}
	return b, nil
}

// openAtOnce opens without waiting for whoever is at the other end. The
// system refuses that for a regular file on which somebody holds a lease, and
// gives it when asked to wait.
func openAtOnce(path string) (int, error) {
	flags := syscall.O_RDONLY | syscall.O_CLOEXEC | syscall.O_NONBLOCK
	for {
		fd, err := syscall.Open(path, flags, 0)
		switch {
		case err == nil:
			return fd, nil
		case errors.Is(err, syscall.EAGAIN) && flags&syscall.O_NONBLOCK != 0 && isLeased(path):
			flags &^= syscall.O_NONBLOCK
		case !errors.Is(err, syscall.EINTR):
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

func isLeased(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// Regular refuses what is no regular file, by its mode. shown is its name in
// the message.
func Regular(m fs.FileMode, shown string) error {
	kind := Kind(m)
	if m.IsDir() {
		kind = "folder"
	}
	if kind == "" {
		return nil
	}
	return errs.New(errs.InvalidArgument, "%s is a %s: put a file there, or take it away", shown, kind)
}
