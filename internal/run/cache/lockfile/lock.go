package lockfile

import (
	"cmp"
	"path"
	"slices"

	"brood/internal/base/digest"
)

// Package is an entry of the lockfile: its name there, with the version or the
// place where it is installed, and a hash of what the file says of it.
type Package struct{ Name, Value string }

// Lock is a lockfile that was understood.
type Lock struct {
	nodes    []node
	projects map[string][]int
	general  []Package
}

type node struct {
	Package
	deps []int
}

// Parse reads a lockfile; nil when the whole file must count.
func Parse(name string, b []byte) *Lock {
	switch path.Base(name) {
	case "pnpm-lock.yaml":
		return parsePnpm(string(b))
	case "package-lock.json", "npm-shrinkwrap.json":
		return parseNpm(b)
	}
	return nil
}

// General is what concerns every project: the file's own format and settings.
func (l *Lock) General() []Package { return l.general }

// Project returns what the project in dir sees by its own dependencies, sorted
// by name; ok is false when the lockfile does not know the project. dir is
// relative to the lockfile's folder, "." is that folder.
func (l *Lock) Project(dir string) (all []Package, ok bool) {
	direct, ok := l.projects[dir]
	if !ok {
		return nil, false
	}
	seen := make([]bool, len(l.nodes))
	queue := make([]int, 0, len(direct))
	visit := func(list []int) {
		for _, n := range list {
			if !seen[n] {
				seen[n] = true
				queue = append(queue, n)
			}
		}
	}
	visit(direct)
	for at := 0; at < len(queue); at++ {
		visit(l.nodes[queue[at]].deps)
	}
	all = make([]Package, len(queue))
	for i, n := range queue {
		all[i] = l.nodes[n].Package
	}
	slices.SortFunc(all, func(a, b Package) int { return cmp.Compare(a.Name, b.Name) })
	return all, true
}

// Direct returns an identity of the project's direct dependencies: projects
// with the same one see the same.
func (l *Lock) Direct(dir string) []int { return l.projects[dir] }

func short(text string) string { return digest.Of([]byte(text)).Short() }

func sortUnique(list []int) []int {
	slices.Sort(list)
	return slices.Compact(list)
}
