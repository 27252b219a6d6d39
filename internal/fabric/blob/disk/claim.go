package disk

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"brood/internal/base/errs"
)

// marker is the file that says that a folder is a Store's; format covers what
// lies where in it.
const (
	marker = "cache.json"
	format = 1
)

// maxMarker bounds what is read of a marker.
const maxMarker = 4096

type mark struct {
	Kind   string `json:"kind"`
	Format int    `json:"format"`
}

const kind = "brood cache"

// claim makes dir a Store's folder when it does not exist or is empty, and is
// content when it is one. Anything else is refused and stays as it is: what lies
// in the folder is evicted, and its names mean something.
func claim(dir string) error {
	path := filepath.Join(dir, marker)
	b, err := readMarker(path)
	switch {
	case err == nil:
		return checkMarker(path, b)
	case errors.Is(err, fs.ErrNotExist):
	default:
		return errs.New(errs.FailedPrecondition, "cache folder: %w: use another folder", err)
	}
	if err := vacant(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return errs.New(errs.FailedPrecondition, "cache folder: %w: use a folder that can be made", err)
	}
	if err := writeMarker(dir); err != nil {
		return diskError(err, "cache folder "+dir)
	}
	return nil
}

func readMarker(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxMarker {
		return nil, nil
	}
	return os.ReadFile(path)
}

func checkMarker(path string, b []byte) error {
	var m mark
	if err := json.Unmarshal(b, &m); err != nil || m.Kind != kind || m.Format < 1 {
		return errs.New(errs.FailedPrecondition,
			"%s is not what a cache of brood's has there: use another folder; if this one is brood's, the file is damaged: remove it and begin again", path)
	}
	if m.Format > format {
		return errs.New(errs.FailedPrecondition,
			"%s has format %d and this brood knows up to %d: a newer brood wrote it, use that one or another folder", path, m.Format, format)
	}
	return nil
}

// vacant refuses a folder with anything in it. Two that claim one folder at
// once see each other's marker, or the file that is about to be renamed to it.
// A folder from before there were markers has the folders, perhaps the lock,
// and nothing else.
func vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errs.New(errs.FailedPrecondition, "cache folder: %w: use a folder that is new or empty", err)
	}
	old := map[string]bool{}
	var foreign string
	for _, e := range entries {
		switch name := e.Name(); {
		case name == "lost+found" || strings.HasPrefix(name, "."+marker):
			// The first is in every new ext file system, which may be the cache's own.
		case e.IsDir() && (name == "cas" || name == "ac" || name == "tmp"), e.Type().IsRegular() && name == "lock":
			old[name] = true
		case foreign == "":
			foreign = name
		}
	}
	if foreign == "" && (len(old) == 0 || old["cas"] && old["ac"]) {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(dir, marker)); err == nil {
		return nil
	}
	for name := range old {
		if foreign == "" {
			foreign = name
		}
	}
	return errs.New(errs.FailedPrecondition,
		"%s is not a cache of brood's and has something in it (%s): use a folder that is new or empty", dir, foreign)
}

// writeMarker is synced, unlike everything else here: a marker that a power cut
// emptied would make the folder a stranger's.
func writeMarker(dir string) (err error) {
	b, err := json.Marshal(mark{Kind: kind, Format: format})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+marker+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if _, err = f.Write(append(b, '\n')); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, marker))
}
