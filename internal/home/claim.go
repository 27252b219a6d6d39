package home

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"brood/internal/base/errs"
)

// marker is the file that says that a folder is a home. Its format covers what
// lies where in it.
const marker = "home.json"

var homes = Schema{
	Kind: "home", Format: 1,
	Repair: `if the folder is a home of brood's, write {"format":1} into that file, else set BROOD_HOME to another folder`,
}

// beforehand are the files that people put into a home before brood has one.
var beforehand = map[string]bool{"config.yaml": true}

// Claim makes dir a home when it does not exist or is empty, and is content
// when it is one. Anything else is refused and stays as it is: brood removes
// from its home what it does not know, and keeps others out of it. A home that
// belongs to somebody else is refused too: whoever owns it owns the sandboxes.
func Claim(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return errs.New(errs.Unsupported, "home folder: %w: set BROOD_HOME to a folder that can be made", err)
	}
	if err := owned(dir); err != nil {
		return err
	}
	path := filepath.Join(dir, marker)
	var rec struct{}
	err := homes.Read(path, &rec)
	switch {
	case err == nil:
		return secure(dir)
	case !errs.Is(err, errs.NotFound):
		return err
	}
	if err := vacant(dir); err != nil {
		return err
	}
	if err := homes.Write(path, rec, Durable); err != nil {
		return errs.New(errs.Unsupported, "home folder: %w", err)
	}
	return secure(dir)
}

// vacant refuses a folder with anything in it that is not the user's part of a
// home. Two that claim one folder at once see each other's marker, or the file
// that is about to be renamed to it.
func vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return errs.New(errs.Unsupported, "home folder: %w", err)
	}
	for _, e := range entries {
		if beforehand[e.Name()] || strings.HasPrefix(e.Name(), "."+marker) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, marker)); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errs.New(errs.Unsupported,
			"%s is not a brood home and has something in it (%s): set BROOD_HOME to a folder that is new or empty", dir, e.Name())
	}
	return nil
}
