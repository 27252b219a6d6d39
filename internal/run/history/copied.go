package history

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"brood/internal/base/errs"
	"brood/internal/home"
)

// Reading says that nothing will be recorded: where the history cannot be
// opened to write (its folder is read-only, or the disk full), a copy of it
// is read. Close removes the copy.
func (h *History) Reading() { h.reading = true }

// unwritable are the reasons for which a copy may be read all the same.
var unwritable = []errs.Code{errs.PermissionDenied, errs.InsufficientDisk}

// openCopied opens a copy in the folder for temporary files; why is what became
// of the file itself. The caller has mu.
func (h *History) openCopied(ctx context.Context, why error) (err error) {
	if !h.reading || h.copied != "" || !slices.Contains(unwritable, errs.CodeOf(why)) {
		return why
	}
	dir, err := os.MkdirTemp("", "brood-history-")
	if err != nil {
		return errors.Join(why, home.DiskError(err, "copy the history to read it"))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	to := filepath.Join(dir, filepath.Base(h.path))
	journals := History{path: to}
	if err := os.Mkdir(journals.journals(), 0o700); err != nil {
		return home.DiskError(err, "copy the history to read it")
	}
	list, err := os.ReadDir(h.journals())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return home.DiskError(err, "history")
	}
	pairs := [][2]string{{h.path, to}, {h.path + "-wal", to + "-wal"}}
	for _, f := range list {
		if f.Type().IsRegular() {
			pairs = append(pairs, [2]string{filepath.Join(h.journals(), f.Name()), filepath.Join(journals.journals(), f.Name())})
		}
	}
	for _, p := range pairs {
		if err := copyFile(p[0], p[1]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return home.DiskError(err, "copy the history to read it")
		}
	}
	h.path, h.copied = to, dir
	return h.openFile(ctx)
}

func copyFile(from, to string) (err error) {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}
