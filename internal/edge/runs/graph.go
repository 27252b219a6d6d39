package runs

import (
	"context"
	"fmt"
	"html"
	"io"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/run"
)

// writeGraph writes the tasks and what waits on what: as an SVG picture where
// the file's name ends so, else in the language of Graphviz.
func (a *app) writeGraph(ctx context.Context, s *session, path string) error {
	write := func(w io.Writer) error { return writeDot(w, s.graph.Tasks) }
	if strings.EqualFold(filepath.Ext(path), ".svg") {
		write = func(w io.Writer) error { return writeSVG(w, s.graph.Tasks) }
	}
	if path == "-" {
		return write(a.Out)
	}
	return a.write(ctx, path, write)
}

// pictured refuses the names of files of formats that are not written.
func pictured(path string) error {
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".png", ".pdf", ".jpg", ".jpeg", ".html", ".mermaid", ".json":
		return errs.New(errs.InvalidArgument, "--graph=%s: there are .dot and .svg, not %s: Graphviz makes others of .dot", path, ext)
	}
	return nil
}

func writeDot(w io.Writer, tasks []*run.Task) error {
	var b strings.Builder
	b.WriteString("digraph {\n\trankdir=LR\n\tnode [shape=box]\n")
	for _, t := range tasks {
		fmt.Fprintf(&b, "\t%q\n", t.ID)
		for _, d := range t.Deps {
			fmt.Fprintf(&b, "\t%q -> %q\n", t.ID, d)
		}
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// Measures of the picture, in pixels.
const (
	svgCell, svgRow, svgGap, svgPad = 7, 28, 60, 12
)

type svgBox struct{ x, y, width int }

// writeSVG draws the tasks in columns: each stands right of all that it waits
// for.
func writeSVG(w io.Writer, tasks []*run.Task) error {
	column := make(map[id.Task]int, len(tasks))
	var columns [][]*run.Task
	for _, t := range tasks {
		at := 0
		for _, d := range t.Deps {
			at = max(at, column[d]+1)
		}
		column[t.ID] = at
		if at == len(columns) {
			columns = append(columns, nil)
		}
		columns[at] = append(columns[at], t)
	}
	boxes := make(map[id.Task]svgBox, len(tasks))
	x, height := svgPad, 0
	for _, col := range columns {
		width := 0
		for _, t := range col {
			width = max(width, utf8.RuneCountInString(string(t.ID))*svgCell+svgPad)
		}
		for i, t := range col {
			boxes[t.ID] = svgBox{x: x, y: svgPad + i*svgRow, width: width}
		}
		height = max(height, len(col)*svgRow)
		x += width + svgGap
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="monospace" font-size="11">`+"\n", max(x-svgGap+svgPad, 2*svgPad), height+2*svgPad)
	for _, t := range tasks {
		to := boxes[t.ID]
		for _, d := range t.Deps {
			from := boxes[d]
			x1, y1, x2, y2 := from.x+from.width, from.y+10, to.x, to.y+10
			mid := (x1 + x2) / 2
			fmt.Fprintf(&b, `<path d="M%d %dC%d %d %d %d %d %d" fill="none" stroke="#999"/>`+"\n", x1, y1, mid, y1, mid, y2, x2, y2)
		}
	}
	for _, t := range tasks {
		box := boxes[t.ID]
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="20" rx="3" fill="#fff" stroke="#333"/><text x="%d" y="%d">%s</text>`+"\n",
			box.x, box.y, box.width, box.x+svgPad/2, box.y+14, html.EscapeString(string(t.ID)))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}
