package graph

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"unicode/utf8"

	"brood/internal/base/id"
)

// Measures of a picture, in pixels; letter is the width of one of the font.
const (
	letter, boxHeight = 7, 26
	gapX, gapY        = 60, 10
	edgeOfPicture     = 20
)

// box is where a task is drawn.
type box struct{ x, y, width int }

// SVG draws the graph in columns, from what waits for nobody on the left to
// what waits for most on the right. No program is needed for it.
func (g *Graph) SVG(to io.Writer) error {
	boxes, width, height := g.layout()
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="monospace" font-size="12">`+"\n", width, height, width, height)
	fmt.Fprintln(w, `<rect width="100%" height="100%" fill="white"/>`)
	for _, t := range g.Tasks {
		at := boxes[t.ID]
		for _, d := range t.Deps {
			from := boxes[d]
			x1, y1, x2, y2 := from.x+from.width, from.y+boxHeight/2, at.x, at.y+boxHeight/2
			fmt.Fprintf(w, `<path d="M%d %d C%d %d %d %d %d %d" fill="none" stroke="#889"/>`+"\n", x1, y1, x1+gapX/2, y1, x2-gapX/2, y2, x2, y2)
		}
	}
	for _, t := range g.Tasks {
		at := boxes[t.ID]
		stroke, dash := "#334", ""
		if t.Requested {
			stroke = "#06c"
		}
		if t.Command.Empty() || t.Excluded {
			dash = ` stroke-dasharray="4 3"`
		}
		fmt.Fprintf(w, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="#f6f7fa" stroke="%s"%s/><text x="%d" y="%d">%s</text>`+"\n",
			at.x, at.y, at.width, boxHeight, stroke, dash, at.x+8, at.y+17, html.EscapeString(string(t.ID)))
	}
	fmt.Fprintln(w, "</svg>")
	return w.Flush() // holds the first error of all writes
}

// layout puts every task one column behind its last dependency.
func (g *Graph) layout() (boxes map[id.Task]box, width, height int) {
	column := make(map[id.Task]int, len(g.Tasks))
	var widest, rows []int
	for _, t := range g.Tasks {
		at := 0
		for _, d := range t.Deps {
			at = max(at, column[d]+1)
		}
		column[t.ID] = at
		if at == len(widest) {
			widest, rows = append(widest, 0), append(rows, 0)
		}
		widest[at] = max(widest[at], 16+letter*utf8.RuneCountInString(string(t.ID)))
	}
	left := make([]int, len(widest))
	width = edgeOfPicture
	for i, w := range widest {
		left[i] = width
		width += w + gapX
	}
	boxes = make(map[id.Task]box, len(g.Tasks))
	for _, t := range g.Tasks {
		c := column[t.ID]
		boxes[t.ID] = box{left[c], edgeOfPicture + rows[c]*(boxHeight+gapY), 16 + letter*utf8.RuneCountInString(string(t.ID))}
		rows[c]++
		height = max(height, edgeOfPicture+rows[c]*(boxHeight+gapY))
	}
	return boxes, max(width-gapX, 0) + edgeOfPicture, height + edgeOfPicture
}
