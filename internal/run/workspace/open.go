package workspace

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"runtime"
	"slices"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/run/workspace/source"
)

// Open reads the workspace that dir is in.
func Open(dir string) (*Workspace, error) {
	dir, err := absolute(dir)
	if err != nil {
		return nil, err
	}
	var top source.File
	root, kind, err := find(dir, &top)
	if err != nil {
		return nil, err
	}
	w := &Workspace{Root: root, Kind: kind}
	if kind == Brood {
		err = w.openBrood(&top)
	} else if err = w.readAside(); err == nil {
		err = w.openPackages(&top)
	}
	if err != nil {
		return nil, err
	}
	if p := w.byName[id.RootProject]; p != nil && p.manifest != nil {
		w.Globals.Engines = p.manifest.engines()
	}
	return w, nil
}

// openPackages reads a workspace whose projects are packages, with or without
// a turbo.json, which is what was read of it, or empty.
func (w *Workspace) openPackages(turboFile *source.File) error {
	top, err := readManifest(w.Root, manifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return errs.New(errs.FailedPrecondition, "%s has a %s and no package.json: put one beside it", w.Root, w.Kind)
	}
	if err != nil {
		return err
	}
	if err := w.addPackages(top); err != nil {
		return err
	}
	w.index()
	w.Inference = w.Kind == Turbo
	if w.Kind == Turbo {
		return w.loadTurbo(turboFile)
	}
	for _, name := range turboFiles { // one that extends is no root's
		if isFile(filepath.Join(w.Root, name)) {
			return errs.New(errs.InvalidArgument, `%s/%s has "extends": the one of the root extends nothing, take it out`, w.Root, name)
		}
	}
	w.Globals.EnvMode = "strict"
	w.tasks = scripts{w}
	return nil
}

// addPackages finds the packages of the package manager's workspace and links
// them. top is the root's package.json.
func (w *Workspace) addPackages(top *manifest) error {
	if err := w.findManager(top); err != nil {
		return err
	}
	var pnpm *pnpmSettings
	globs := top.Workspaces.Globs
	w.SinglePackage = !top.Workspaces.Set
	if w.Manager.Name == "pnpm" {
		var err error
		pnpm, err = readPnpm(w.Root)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if pnpm != nil {
			globs, w.SinglePackage = pnpm.packages, len(pnpm.packages) == 0
		}
	}
	w.Projects = []*Project{{Name: id.RootProject, Dir: ".", Scripts: top.Scripts, manifest: top}}
	if !w.SinglePackage {
		if err := w.addMembers(globs); err != nil {
			return err
		}
	}
	return w.linkAll(pnpm)
}

// addMembers reads the package.json of every folder that the globs name.
func (w *Workspace) addMembers(globs []string) error {
	dirs, links, err := membersAndLinks(w.Root, globs, nil) // reading tells which are packages
	if err != nil {
		return err
	}
	for _, name := range links {
		w.warn(name + " is a link to a package and is left out: name the folder that it leads to among the workspaces")
	}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return dir == "." })
	read := make([]*manifest, len(dirs))
	failures := life.Each(context.Background(), len(dirs), runtime.GOMAXPROCS(0), func(_ context.Context, i int) (err error) {
		read[i], err = readManifest(filepath.Join(w.Root, dirs[i]), path.Join(dirs[i], manifestName))
		return err
	})
	where := make(map[string]string, len(dirs))
	for i, dir := range dirs {
		m := read[i]
		switch {
		case notThere(failures[i]):
			continue
		case failures[i] != nil:
			return failures[i]
		}
		if m.Name == "" {
			w.warn(dir + "/package.json has no name: its package is left out")
			continue
		}
		if other := where[m.Name]; other != "" {
			return errs.New(errs.FailedPrecondition, "%s and %s are both named %q: give each package a name of its own", other, dir, m.Name)
		}
		where[m.Name] = dir
		w.Projects = append(w.Projects, &Project{Name: id.Project(m.Name), Dir: dir, Scripts: m.Scripts, manifest: m})
	}
	return nil
}

// linkAll finds the edges between the packages.
func (w *Workspace) linkAll(pnpm *pnpmSettings) error {
	explicit, err := w.explicitLinks(pnpm)
	if err != nil {
		return err
	}
	l := linker{byName: map[id.Project]*Project{}, byDir: map[string]*Project{}, explicit: explicit}
	if pnpm != nil {
		l.catalogs = pnpm.catalogs
	}
	for _, p := range w.Projects {
		l.byName[p.Name], l.byDir[p.Dir] = p, p
	}
	for _, p := range w.Projects {
		if p.manifest == nil {
			continue
		}
		l.link(p)
		p.Framework = frameworkOf(p.External)
		if w.SinglePackage {
			p.Framework = frameworkOf(p.manifest.Dependencies)
		}
	}
	return nil
}
