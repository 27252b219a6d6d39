package workspace

import (
	"slices"
	"strings"

	"brood/internal/base/id"
)

// parseRef reads x, ^x, project#x.
func parseRef(text string) Ref {
	name, up := strings.CutPrefix(text, "^")
	ref := Ref{Up: up, Name: name}
	if project, task, ok := strings.Cut(name, "#"); ok {
		ref.Project, ref.Name = id.Project(project), task
	}
	return ref
}

// sortRefs sorts references and removes doubles.
func sortRefs(refs []Ref) []Ref {
	slices.SortStableFunc(refs, func(a, b Ref) int { return strings.Compare(a.String(), b.String()) })
	return slices.CompactFunc(refs, func(a, b Ref) bool { return a.String() == b.String() })
}
