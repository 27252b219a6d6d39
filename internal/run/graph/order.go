package graph

import (
	"slices"
	"strings"

	"brood/internal/base/errs"
)

// sortNodes returns the indices of all nodes, each after its dependencies, in
// the order of their IDs where the edges leave a choice. It does not recurse.
func sortNodes(nodes []*node) ([]int, error) {
	byID := make([]int, len(nodes))
	for i := range byID {
		byID[i] = i
	}
	slices.SortFunc(byID, func(a, b int) int { return strings.Compare(string(nodes[a].id), string(nodes[b].id)) })
	rank := make([]int, len(nodes))
	for r, at := range byID {
		rank[at] = r
	}
	for _, n := range nodes {
		slices.SortFunc(n.deps, func(a, b int) int { return rank[a] - rank[b] })
	}
	const fresh, open, done = 0, 1, 2
	state := make([]uint8, len(nodes))
	next := make([]int, len(nodes))
	order := make([]int, 0, len(nodes))
	var path []int
	for _, begin := range byID {
		if state[begin] != fresh {
			continue
		}
		state[begin] = open
		path = append(path[:0], begin)
		for len(path) > 0 {
			at := path[len(path)-1]
			if next[at] == len(nodes[at].deps) {
				state[at] = done
				order = append(order, at)
				path = path[:len(path)-1]
				continue
			}
			dep := nodes[at].deps[next[at]]
			next[at]++
			switch state[dep] {
			case open:
				return nil, cycle(nodes, path[slices.Index(path, dep):])
			case fresh:
				state[dep] = open
				path = append(path, dep)
			}
		}
	}
	return order, nil
}

// cycle words the refusal of a circle of tasks, its least one first.
func cycle(nodes []*node, path []int) error {
	least := 0
	for i, at := range path {
		if nodes[at].id < nodes[path[least]].id {
			least = i
		}
	}
	names := make([]string, 0, len(path)+1)
	for i := range len(path) + 1 {
		names = append(names, string(nodes[path[(least+i)%len(path)]].id))
	}
	if len(path) == 1 {
		return errs.New(errs.FailedPrecondition, "%s depends on itself: take it out of its dependsOn", names[0])
	}
	const shown = 20
	if len(names) > shown {
		names = append(append(names[:shown/2:shown/2], "…"), names[len(names)-shown/2:]...)
	}
	return errs.New(errs.FailedPrecondition, "tasks depend on each other in a circle: %s", strings.Join(names, " → "))
}
