package view

import (
	"fmt"
	"strings"

	"brood/internal/base/clean"
	"brood/internal/run"
	"brood/internal/run/orchestrator"
)

const (
	// againLines is how many lines of a failure are shown again at the end.
	againLines = 40
	// namesShown is how many names a line of the summary has.
	namesShown = 5
)

// closing is what stays on the screen: the failures with the end of their
// output, and the sum.
func (v *View) closing(f orchestrator.Finished) {
	v.breakLine()
	for _, t := range v.book.failures {
		v.again(t)
	}
	v.text.WriteByte('\n')
	for _, row := range v.rows(f) {
		fmt.Fprintf(&v.text, "%s  %s\n", v.paint.bold(fmt.Sprintf("%9s", row[0])), row[1])
	}
}

// again shows a failure at the end, where it is looked for. In a block of a
// log that folds it is the last thing seen anyway, and is only named.
func (v *View) again(t *task) {
	if t.mode == LogsNone || v.o.GitHub || t.held.size == 0 {
		return
	}
	fmt.Fprintf(&v.text, "\n%s %s\n", v.paint.bad(label(t.info.Task)), v.paint.faint(verdict(*t.ended)))
	for line := range strings.SplitSeq(t.held.tail(againLines), "\n") {
		fmt.Fprintf(&v.text, "  %s\n", visible(line))
	}
}

// rows are the lines of the sum.
func (v *View) rows(f orchestrator.Finished) [][2]string {
	p := v.paint
	rows := [][2]string{{"Tasks", counts(p, f)}}
	time := took(f.WallMS)
	if f.SavedMS > 0 {
		time += ", the cache saved " + p.good(took(f.SavedMS)) + " of work"
	}
	rows = append(rows, [2]string{"Time", time})
	if len(f.Slowest) > 0 {
		rows = append(rows, [2]string{"Slowest", steps(f.Slowest, ", ", true)})
	}
	if len(f.CriticalPath) > 1 {
		var sum int64
		for _, s := range f.CriticalPath {
			sum += s.TookMS
		}
		rows = append(rows, [2]string{"Critical", steps(f.CriticalPath, " > ", false) + ", " + took(sum)})
	}
	if n := len(v.book.unsaved); n > 0 {
		rows = append(rows, [2]string{"Not saved", p.warn(plural(n, "result")) + ": " + names(v.book.unsaved)})
	}
	for _, name := range f.Failures {
		rows = append(rows, [2]string{"Failed", p.bad(label(name)) + ": " + verdict(*v.book.of(name).ended)})
	}
	return rows
}

func counts(p paint, f orchestrator.Finished) string {
	var parts []string
	add := func(n int, what string, colour func(string) string) {
		if n > 0 {
			parts = append(parts, colour(fmt.Sprintf("%d %s", n, what)))
		}
	}
	add(f.Cached, "cached", p.good)
	add(f.Success, "done", p.good)
	add(f.Failed, "failed", p.bad)
	add(f.Skipped, "skipped", p.warn)
	add(f.Aborted, "aborted", p.warn)
	return strings.Join(append(parts, fmt.Sprintf("%d total", f.Tasks)), ", ")
}

func names(all []*task) string {
	var parts []string
	for _, t := range all[:min(len(all), namesShown)] {
		parts = append(parts, label(t.info.Task))
	}
	if more := len(all) - namesShown; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", ")
}

func steps(all []orchestrator.Step, sep string, times bool) string {
	var parts []string
	for _, s := range all[:min(len(all), namesShown)] {
		part := label(s.Task)
		if times {
			part += " " + took(s.TookMS)
		}
		parts = append(parts, part)
	}
	if more := len(all) - namesShown; more > 0 && !times {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, sep)
}

// Tells says in a few words what became of a run, for an error's text.
func Tells(f orchestrator.Finished) string {
	switch {
	case len(f.Failures) == 1:
		return fmt.Sprintf("task %s failed", clean.Text(string(f.Failures[0])))
	case f.Failed > 1:
		names := make([]string, 0, namesShown)
		for _, n := range f.Failures[:min(namesShown, len(f.Failures))] {
			names = append(names, clean.Text(string(n)))
		}
		if more := f.Failed - len(names); more > 0 {
			names = append(names, fmt.Sprintf("%d more", more))
		}
		return fmt.Sprintf("%d tasks failed: %s", f.Failed, strings.Join(names, ", "))
	case f.Status == run.Aborted:
		return fmt.Sprintf("interrupted: %s of %d had not ended", plural(f.Aborted, "task"), f.Tasks)
	}
	return ""
}
