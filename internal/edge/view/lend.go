package view

import (
	"bytes"
	"fmt"
)

// lends says that a task has the terminal while it runs.
func (v *View) lends(t *task) bool {
	return v.o.Lend && t.info.Interactive && !t.info.Persistent
}

// hold bounds what waits until the terminal is the view's again: persistent
// tasks may write for hours. The end of it is kept.
func (v *View) hold() {
	if v.text.Len() <= groupMost {
		return
	}
	v.text.Next(v.text.Len() - groupMost/2)
	if i := bytes.IndexByte(v.text.Bytes(), '\n'); i >= 0 {
		v.text.Next(i + 1)
	}
	v.missed = true
}

// regain makes the terminal the view's again, which goes on at the beginning of
// a line: blanks that fill a line go over its end if the task left the cursor
// anywhere else.
func (v *View) regain() {
	if v.owner == nil {
		return
	}
	v.owner = nil
	waiting := bytes.Clone(v.text.Bytes())
	v.text.Reset()
	if v.o.Size != nil {
		cols, _ := v.o.Size()
		fmt.Fprintf(&v.text, "%*s\r\x1b[K", max(cols-1, 0), "")
	}
	if v.missed {
		v.missed = false
		v.text.WriteString(v.paint.faint("the beginning of what was written meanwhile is left out") + "\n")
	}
	v.text.Write(waiting)
}
