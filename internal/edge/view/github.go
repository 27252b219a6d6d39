package view

import (
	"fmt"
	"io"
	"strings"

	"brood/internal/base/clean"
	"brood/internal/run"
	"brood/internal/run/orchestrator"
)

// annotationLines is how many lines of output an annotation carries.
const annotationLines = 20

// annotate puts a failure where a workflow's page shows it.
func (v *View) annotate(t *task, e orchestrator.Ended) {
	if !v.o.GitHub {
		return
	}
	text := verdict(e)
	if tail := plain(t.held.tail(annotationLines)); tail != "" {
		text += "\n" + tail
	}
	fmt.Fprintf(&v.text, "::error title=%s::%s\n", escapeProperty(clean.Text(string(t.info.Task))), escape(text))
}

// escape makes a text one value of a workflow command.
func escape(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

func escapeProperty(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace(s)
}

// WriteSummary writes a run as the Markdown that a step summary shows.
func WriteSummary(w io.Writer, r *orchestrator.Report) error {
	var b strings.Builder
	f := r.Finished
	icon := map[run.Status]string{run.Success: "✅", run.Failed: "❌", run.Aborted: "⏹"}[f.Status]
	fmt.Fprintf(&b, "### %s %s in %s\n\n", icon, counts(false, f), took(f.WallMS))
	if f.SavedMS > 0 {
		fmt.Fprintf(&b, "The cache saved %s of work.\n\n", took(f.SavedMS))
	}
	failures := map[string]bool{}
	for _, e := range r.Ended {
		if e.Status == run.Failed {
			if len(failures) == 0 {
				b.WriteString("| failed | how |\n|---|---|\n")
			}
			failures[string(e.Task)] = true
			fmt.Fprintf(&b, "| `%s` | %s |\n", cell(clean.Text(string(e.Task))), cell(verdict(e)))
		}
	}
	if len(failures) > 0 {
		b.WriteByte('\n')
	}
	if len(f.Slowest) > 0 {
		b.WriteString("| slowest | took |\n|---|---|\n")
		for _, s := range f.Slowest {
			fmt.Fprintf(&b, "| `%s` | %s |\n", cell(clean.Text(string(s.Task))), took(s.TookMS))
		}
		b.WriteByte('\n')
	}
	if len(f.CriticalPath) > 1 {
		fmt.Fprintf(&b, "Critical path: %s\n\n", cell(steps(f.CriticalPath, " → ", true)))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "`", "'").Replace(s)
}
