package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"brood/internal/base/errs"
	"brood/internal/run/workspace/source"
)

const broodFile = "brood.yaml"

// turboFiles are the names of turbo's configuration, the usual one first.
var turboFiles = []string{"turbo.json", "turbo.jsonc"}

// Root returns the root of the workspace that dir is in, as Open would, without
// reading the workspace: what only depends on the root can begin beside Open.
func Root(dir string) (string, error) {
	dir, err := absolute(dir)
	if err != nil {
		return "", err
	}
	root, _, err := find(dir, &source.File{})
	return root, err
}

// find returns the root of the workspace that dir is in and what defines it.
// The kinds are looked for one after the other, each in the nearest folder
// upwards: brood.yaml, turbo.json, a package manager's workspace, and at last
// the nearest package.json.
//
// found keeps the root's file as it was read, so that it is read once.
func find(dir string, found *source.File) (string, Kind, error) {
	isBroodRoot := func(dir string) (bool, error) { return isBroodRoot(dir, found) }
	isTurboRoot := func(dir string) (bool, error) { return isTurboRoot(dir, found) }
	for _, look := range []struct {
		kind Kind
		is   func(dir string) (bool, error)
	}{
		{Brood, isBroodRoot}, {Turbo, isTurboRoot}, {Scripts, isManagerRoot},
		{Single, isPackage},
	} {
		root, err := upwards(dir, look.is)
		if root != "" || err != nil {
			return root, look.kind, err
		}
	}
	if root, err := upwards(dir, func(dir string) (bool, error) { return isFile(filepath.Join(dir, broodFile)), nil }); root != "" || err != nil {
		return root, Brood, err
	}
	return "", "", errs.New(errs.NotFound, "neither %s nor a folder above it has a brood.yaml, turbo.json or package.json: change to the repository, or write a brood.yaml with `brood init`", dir)
}

// upwards returns the nearest folder that is what is asked for, or "".
func upwards(dir string, is func(string) (bool, error)) (string, error) {
	for {
		yes, err := is(dir)
		if yes || err != nil {
			return dir, err
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", nil
		}
		dir = up
	}
}

// isBroodRoot tells a root's brood.yaml from a project's: it speaks of
// projects. One that cannot be read is taken as a root's, so that the reason
// is told.
func isBroodRoot(dir string, found *source.File) (bool, error) {
	path := filepath.Join(dir, broodFile)
	raw, err := source.Read(path, path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	f, err := source.YAML(broodFile, raw)
	if err != nil {
		return true, nil //nolint:nilerr // told when it is read
	}
	if f.Root.Get("projects") == nil {
		return false, nil
	}
	*found = *f
	return true, nil
}

// isTurboRoot tells a root's turbo.json from a package's, which extends it.
func isTurboRoot(dir string, found *source.File) (bool, error) {
	for _, name := range turboFiles {
		path := filepath.Join(dir, name)
		raw, err := source.Read(path, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		f, err := source.JSON(name, raw)
		if err != nil {
			return true, nil //nolint:nilerr // told when it is read
		}
		if f.Root.Get("extends") != nil {
			return false, nil
		}
		*found = *f
		return true, nil
	}
	return false, nil
}

// isManagerRoot says whether the folder is the root of a package manager's
// workspace.
func isManagerRoot(dir string) (bool, error) {
	path := filepath.Join(dir, pnpmWorkspace)
	if yes, err := isRegular(path, path); err != nil {
		return false, err
	} else if yes {
		return isPackage(dir)
	}
	m, err := readManifest(dir, manifestName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, nil //nolint:nilerr // told when it turns out to be the project's
	}
	return m.Workspaces.Set, nil
}

// isPackage says whether the folder has a package.json.
func isPackage(dir string) (bool, error) {
	path := filepath.Join(dir, manifestName)
	return isRegular(path, path)
}

// absolute resolves links of a folder, so that a root has one name.
func absolute(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, os.ErrNotExist) {
		return "", errs.New(errs.NotFound, "%s does not exist", abs)
	}
	if err == nil {
		err = folder(real)
	}
	if err != nil {
		return "", errs.New(errs.InvalidArgument, "%s is no folder that can be read: %w", abs, err)
	}
	return real, nil
}

// folder is an error where there is none.
func folder(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	return err
}

// GlobalFiles are files of the root whose change concerns every project.
var GlobalFiles = []string{broodFile, "turbo.json", "turbo.jsonc", pnpmWorkspace}
