package workspace

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"brood/internal/base/content"
	"brood/internal/base/errs"
	"brood/internal/base/lazy"
	"brood/internal/run"
	"brood/internal/run/workspace/source"
)

// lockfiles are the names of each manager's lockfile, the preferred one first.
var lockfiles = []struct {
	manager string
	names   []string
}{
	{"pnpm", []string{"pnpm-lock.yaml"}},
	{"npm", []string{"package-lock.json", "npm-shrinkwrap.json"}},
	{"yarn", []string{"yarn.lock"}},
	{"bun", []string{"bun.lock", "bun.lockb"}},
}

var managerForm = lazy.Regexp(`^(npm|pnpm|yarn|bun)@\^?~?v?(\d+(?:\.\d+(?:\.\d+(?:-[0-9A-Za-z.-]+)?)?)?)`)

// manager finds the package manager: devEngines or packageManager of the
// root's package.json, else the lockfile. The version is empty where nothing
// pins it and the lockfile does not tell.
func (w *Workspace) findManager(m *manifest) error {
	if m.PackageManager == "" && m.DevEngines.PackageManager.Name != "" {
		m.PackageManager = m.DevEngines.PackageManager.Name + "@" + m.DevEngines.PackageManager.Version
	}
	if m.PackageManager != "" {
		name, _, _ := strings.Cut(m.PackageManager, "@")
		if !slices.Contains([]string{"npm", "pnpm", "yarn", "bun"}, name) {
			return errs.New(errs.InvalidArgument, "package.json: packageManager is %q: npm, pnpm, yarn and bun are known", m.PackageManager)
		}
		w.Manager.Name = name
		if parts := managerForm().FindStringSubmatch(m.PackageManager); parts != nil {
			w.Manager.Version = parts[2]
		}
		var err error
		w.Lockfile, err = w.lockfileOf(name)
		return err
	}
	return w.managerByLockfile()
}

func (w *Workspace) lockfileOf(manager string) (string, error) {
	for _, l := range lockfiles {
		if l.manager != manager {
			continue
		}
		for _, name := range l.names {
			if yes, err := isRegular(filepath.Join(w.Root, name), name); yes || err != nil {
				return name, err
			}
		}
	}
	return "", nil
}

func (w *Workspace) managerByLockfile() error {
	var found []string
	for _, l := range lockfiles {
		name, err := w.lockfileOf(l.manager)
		if err != nil {
			return err
		}
		if name != "" {
			found = append(found, name)
			w.Manager, w.Lockfile = run.Manager{Name: l.manager}, name
		}
	}
	switch len(found) {
	case 0:
		w.Manager = run.Manager{Name: "npm"} // it comes with Node
		yes, err := isRegular(filepath.Join(w.Root, pnpmWorkspace), pnpmWorkspace)
		if yes {
			w.Manager.Name = "pnpm"
		}
		return err
	case 1:
		var err error
		w.Manager.Version, err = lockedBy(w.Manager.Name, filepath.Join(w.Root, w.Lockfile))
		return err
	}
	return errs.New(errs.FailedPrecondition,
		"there is more than one lockfile (%s): remove those of managers that are not used, or name one as packageManager in package.json", strings.Join(found, ", "))
}

// lockedBy tells from the head of a lockfile which major version wrote it.
func lockedBy(manager, path string) (string, error) {
	const enough = 4096
	head, err := content.ReadHead(path, filepath.Base(path), enough)
	if err != nil {
		return "", err
	}
	return lockVersion(manager, head), nil
}

func lockVersion(manager string, head []byte) string {
	switch manager {
	case "yarn":
		if bytes.Contains(head, []byte("__metadata:")) {
			return "4" // berry
		}
		return "1"
	case "pnpm":
		m := regexp.MustCompile(`(?m)^lockfileVersion:\s*'?"?(\d+)`).FindSubmatch(head)
		if m == nil {
			return ""
		}
		switch major, _ := strconv.Atoi(string(m[1])); {
		case major >= 9:
			return "9"
		case major >= 6:
			return "8"
		case major == 5:
			return "7"
		}
	}
	return ""
}

const pnpmWorkspace = "pnpm-workspace.yaml"

// pnpmSettings are what is read of pnpm-workspace.yaml.
type pnpmSettings struct {
	packages []string
	link     *bool
	catalogs catalogs
}

func readPnpm(root string) (*pnpmSettings, error) {
	raw, err := source.Read(filepath.Join(root, pnpmWorkspace), pnpmWorkspace)
	if err != nil {
		return nil, err
	}
	return parsePnpm(raw)
}

func parsePnpm(raw []byte) (*pnpmSettings, error) {
	f, err := source.YAML(pnpmWorkspace, raw)
	if err != nil {
		return nil, err
	}
	s := &pnpmSettings{catalogs: catalogs{}}
	ignore := func(source.Field, string) error { return nil } // the rest is pnpm's business
	err = f.Each(f.Root, "", source.Keys{
		"packages": f.Strings("packages", &s.packages),
		"linkWorkspacePackages": func(n *source.Node) error {
			on := n.Kind == source.Bool && n.Bool || n.Text == "deep" || n.Text == "true"
			s.link = &on
			return nil
		},
		"catalog": func(n *source.Node) error { return s.catalog("default", n) },
		"catalogs": func(n *source.Node) error {
			for _, set := range n.Fields {
				if err := s.catalog(set.Key, set.Value); err != nil {
					return err
				}
			}
			return nil
		},
	}, ignore)
	return s, err
}

func (s *pnpmSettings) catalog(name string, n *source.Node) error {
	set := map[string]string{}
	for _, f := range n.Fields {
		set[f.Key] = f.Value.Text
	}
	s.catalogs[name] = set
	return nil
}

// explicitLinks says whether only workspace: means a package of the workspace.
func (w *Workspace) explicitLinks(pnpm *pnpmSettings) (bool, error) {
	switch {
	case w.Manager.Name == "yarn" && w.Manager.Version != "" && !strings.HasPrefix(w.Manager.Version, "1"):
		return yarnExplicit(w.Root)
	case w.Manager.Name != "pnpm":
		return false, nil
	}
	if pnpm != nil && pnpm.link != nil {
		return !*pnpm.link, nil
	}
	if set, on, err := npmrcLinks(w.Root); err != nil || set {
		return !on, err
	}
	head, _, _ := strings.Cut(w.Manager.Version, ".")
	major, err := strconv.Atoi(head)
	return err == nil && major >= 9, nil
}

// npmrcLinks reads link-workspace-packages of .npmrc.
func npmrcLinks(root string) (set, on bool, err error) {
	raw, err := source.Read(filepath.Join(root, ".npmrc"), ".npmrc")
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, source.MaxSize+1)
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), "=")
		if ok && strings.TrimSpace(key) == "link-workspace-packages" {
			value = strings.TrimSpace(value)
			set, on = true, value == "true" || value == "deep"
		}
	}
	return set, on, lines.Err()
}

// yarnExplicit reads enableTransparentWorkspaces of .yarnrc.yml.
func yarnExplicit(root string) (bool, error) {
	const name = ".yarnrc.yml"
	raw, err := source.Read(filepath.Join(root, name), name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	f, err := source.YAML(name, raw)
	if err != nil {
		return false, err
	}
	on := f.Root.Get("enableTransparentWorkspaces")
	return on != nil && on.Kind == source.Bool && !on.Bool, nil
}

// isRegular says whether there is a file, and refuses what is none. shown is its
// name in messages.
func isRegular(path, shown string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, content.Dangling(path, shown) // else not there, or nothing that we can see
	}
	if err := content.Regular(info.Mode(), shown); err != nil {
		return false, err
	}
	return true, nil
}

// isFile is isRegular where what is no file does not matter.
func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// isThere says whether there is anything at path, a link that leads nowhere
// included.
func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
