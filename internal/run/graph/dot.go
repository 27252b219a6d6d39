package graph

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"brood/internal/run"
)

// Dot writes the graph in the language of Graphviz: an edge goes from a task
// to what it waits for. Groups are dashed, what the user named is bold.
func (g *Graph) Dot(to io.Writer) error {
	w := bufio.NewWriter(to)
	fmt.Fprintln(w, "digraph tasks {")
	fmt.Fprintln(w, "\trankdir = LR")
	fmt.Fprintln(w, "\tnode [shape = box]")
	tasks := slices.Clone(g.Tasks)
	slices.SortFunc(tasks, func(a, b *run.Task) int { return strings.Compare(string(a.ID), string(b.ID)) })
	for _, t := range tasks {
		var style []string
		if t.Requested {
			style = append(style, "bold")
		}
		if t.Command.Empty() || t.Excluded {
			style = append(style, "dashed")
		}
		attributes := ""
		if len(style) > 0 {
			attributes = " [style = " + quote(strings.Join(style, ",")) + "]"
		}
		fmt.Fprintf(w, "\t%s%s\n", quote(string(t.ID)), attributes)
	}
	for _, t := range tasks {
		for _, d := range t.Deps {
			fmt.Fprintf(w, "\t%s -> %s\n", quote(string(t.ID)), quote(string(d)))
		}
	}
	fmt.Fprintln(w, "}")
	return w.Flush() // holds the first error of all writes
}

// quote writes a string of dot: only the quote and the backslash are special.
func quote(s string) string {
	if strings.ContainsAny(s, "\"\\\n") {
		return strconv.Quote(s)
	}
	return `"` + s + `"`
}
