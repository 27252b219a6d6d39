package workspace

import (
	"path"
	"slices"
	"strings"

	"brood/internal/base/id"
)

// linker finds which dependencies of a package are other packages of the
// workspace, as turbo does.
type linker struct {
	byName map[id.Project]*Project
	byDir  map[string]*Project
	// explicit says that only workspace: links; pnpm from 9 on does so.
	explicit bool
	catalogs catalogs
}

// link fills Deps and External of the project.
func (l *linker) link(p *Project) {
	p.External = map[string]string{}
	for name, want := range p.manifest.dependencies() {
		want = l.catalogs.resolve(name, want)
		if to := l.internal(p, name, want); to == nil {
			p.External[name] = want
		} else if to != p && !slices.Contains(p.Deps, to) {
			p.Deps = append(p.Deps, to)
		}
	}
}

// internal returns the project that a dependency means, nil for one from
// outside.
func (l *linker) internal(p *Project, name, want string) *Project {
	local, isWorkspace := strings.CutPrefix(want, "workspace:")
	if l.explicit && !isWorkspace {
		return nil
	}
	if isWorkspace {
		return l.workspaceProtocol(p, name, local)
	}
	to := l.byName[id.Project(name)]
	if to == nil || to.IsRoot() {
		return nil
	}
	protocol, rest, has := strings.Cut(want, ":")
	switch {
	case has && (protocol == "file" || protocol == "link"):
		if inside(path.Join(p.Dir, rest)) {
			return to
		}
		return nil
	case has && protocol != "npm":
		return nil
	case has:
		want = rest
	}
	if want == "*" || to.manifest == nil || satisfies(to.manifest.Version, want) {
		return to
	}
	return nil
}

// workspaceProtocol resolves what follows "workspace:": a range or mark, which
// is taken as it is; name@mark for an alias; or a folder.
func (l *linker) workspaceProtocol(p *Project, name, local string) *Project {
	at := strings.LastIndexByte(local, '@')
	switch {
	case at > 0 && slices.Contains([]string{"*", "^", "~"}, local[at+1:]):
		name = local[:at]
	case strings.Contains(local, "/"):
		to := l.byDir[path.Join(p.Dir, local)]
		if to == nil {
			to = l.byDir[path.Clean(local)] // yarn 4: from the root
		}
		if to != nil && !to.IsRoot() {
			return to
		}
		return nil
	}
	to := l.byName[id.Project(name)]
	if to == nil || to.IsRoot() {
		return nil
	}
	return to
}

func inside(dir string) bool {
	return dir != ".." && !strings.HasPrefix(dir, "../") && !path.IsAbs(dir)
}

// satisfies takes what is no version or no range (a tag) as fitting.
func satisfies(have, want string) bool {
	v, isVersion := parseVersion(have)
	c, isRange := parseConstraint(want)
	return !isVersion || !isRange || c.allows(v)
}

// catalogs are pnpm's named sets of ranges; the one without a name is "default".
type catalogs map[string]map[string]string

// resolve replaces catalog: by the range that it means.
func (c catalogs) resolve(name, want string) string {
	set, ok := strings.CutPrefix(want, "catalog:")
	if !ok {
		return want
	}
	if set = strings.TrimSpace(set); set == "" {
		set = "default"
	}
	if to, ok := c[set][name]; ok {
		return to
	}
	return want
}
