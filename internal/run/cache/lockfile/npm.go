package lockfile

import (
	"encoding/json"
	"path"
	"slices"
	"strconv"
)

// npmPackage is what package-lock.json says of a folder: a project, or a
// package under some node_modules.
type npmPackage struct {
	Version              string            `json:"version"`
	Link                 bool              `json:"link"`
	Dependencies         map[string]string `json:"dependencies"`
	DevDependencies      map[string]string `json:"devDependencies"`
	OptionalDependencies map[string]string `json:"optionalDependencies"`
	PeerDependencies     map[string]string `json:"peerDependencies"`
}

func parseNpm(b []byte) *Lock {
	var file struct {
		LockfileVersion int                        `json:"lockfileVersion"`
		Packages        map[string]json.RawMessage `json:"packages"`
	}
	if json.Unmarshal(b, &file) != nil || file.LockfileVersion < 2 || file.LockfileVersion > 3 || file.Packages == nil {
		return nil
	}
	n := npm{packages: make(map[string]npmPackage, len(file.Packages)), index: map[string]int{}}
	l := &Lock{projects: map[string][]int{}, general: []Package{{"lockfileVersion", strconv.Itoa(file.LockfileVersion)}}}
	names := make([]string, 0, len(file.Packages))
	for name, raw := range file.Packages {
		var p npmPackage
		if json.Unmarshal(raw, &p) != nil {
			return nil
		}
		n.packages[name] = p
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if installed(name) {
			n.index[name] = len(l.nodes)
			p := n.packages[name]
			l.nodes = append(l.nodes, node{Package: Package{name, p.Version + " " + short(string(file.Packages[name]))}})
		}
	}
	for _, name := range names {
		p := n.packages[name]
		if i, ok := n.index[name]; ok {
			l.nodes[i].deps = n.resolve(name, p.Dependencies, p.OptionalDependencies, p.PeerDependencies)
			continue
		}
		dir := name
		if dir == "" {
			dir = "."
		}
		l.projects[dir] = n.resolve(name, p.Dependencies, p.DevDependencies, p.OptionalDependencies, p.PeerDependencies)
	}
	return l
}

// installed says that a folder is a package under node_modules.
func installed(name string) bool {
	for dir := path.Dir(name); dir != "." && dir != "/"; dir = path.Dir(dir) {
		if path.Base(dir) == "node_modules" {
			return true
		}
	}
	return false
}

type npm struct {
	packages map[string]npmPackage
	index    map[string]int
}

// resolve finds the packages that a folder gets for its dependencies, the way
// Node does: in the nearest node_modules upwards that has one of that name. A
// link leads to a project of the workspace and ends there, one that is nowhere
// is optional or provided by somebody else.
func (n npm) resolve(from string, lists ...map[string]string) []int {
	var all []int
	for _, list := range lists {
		for name := range list {
			for dir := from; ; dir = path.Dir(dir) {
				if dir == "." {
					dir = ""
				}
				at := path.Join(dir, "node_modules", name)
				if p, ok := n.packages[at]; ok {
					if i, ok := n.index[at]; ok && !p.Link {
						all = append(all, i)
					}
					break
				}
				if dir == "" || dir == "/" {
					break
				}
			}
		}
	}
	return sortUnique(all)
}
