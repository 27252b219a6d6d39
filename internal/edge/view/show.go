package view

import (
	"fmt"

	"brood/internal/base/clean"
	"brood/internal/run"
	"brood/internal/run/orchestrator"
)

// show adds to the text what an event has to be seen by.
func (v *View) show(t *task, e orchestrator.Event) {
	if t != nil {
		v.dress(t)
	}
	switch e := e.(type) {
	case orchestrator.Waiting:
		why := "another run of this workspace executes it"
		if e.For != "" {
			why = label(e.For) + " writes the same files"
		}
		v.say(t, v.paint.faint("waits: "+why))
	case orchestrator.Started:
		v.showStart(t, e)
	case orchestrator.Output:
		v.showOutput(t, e)
	case orchestrator.Retrying:
		v.say(t, v.paint.warn(fmt.Sprintf("attempt %d failed (%s), trying again", e.Attempt, ending(e.Exit, "", e.TimedOut))))
	case orchestrator.Ended:
		v.showEnd(t, e)
	case orchestrator.Uploading:
		v.showUploading(e)
	case orchestrator.Warning:
		v.showWarning(t, e)
	case orchestrator.Finished:
		v.closing(e)
	}
}

// dress gives a task its colour and mode when it is first seen.
func (v *View) dress(t *task) {
	if t.mode != "" {
		return
	}
	t.mode = v.o.Mode(t.info.Logs)
	t.colour = colours[v.started%len(colours)]
	v.started++
}

// grouped says that a task's output is shown as a block when it ends; those
// that never end are not waited for, and those that have the terminal write
// there themselves.
func (v *View) grouped(t *task) bool { return v.o.Grouped && !t.info.Persistent && !v.lends(t) }

func (v *View) showStart(t *task, e orchestrator.Started) {
	if e.Attempt > 1 || v.grouped(t) {
		return
	}
	v.head(t)
}

// head is the line that says why a task runs, or that it doesn't.
func (v *View) head(t *task) {
	if t.mode == LogsErrorsOnly || t.mode == LogsNone {
		return
	}
	t.headed = true
	v.say(t, v.paint.faint(t.headline()))
}

func (t *task) headline() string {
	key := t.key.Short()
	if t.info.Persistent {
		return "runs until it is stopped"
	}
	switch t.cache {
	case "hit":
		if t.remote {
			return "remote cache hit " + key
		}
		return "cache hit " + key
	case "off":
		return "not cached, runs"
	case "unknown":
		return "has no key, runs"
	}
	if t.damage != "" {
		return "cache miss " + key + ", runs: what is stored cannot be restored (" + clean.Message(t.damage) + ")"
	}
	return "cache miss " + key + ", runs"
}

func (v *View) showOutput(t *task, e orchestrator.Output) {
	t.held.add(e.Text, v.keeps(t))
	switch {
	case v.grouped(t) || t.mode == LogsErrorsOnly || t.mode == LogsNone || t.mode == LogsHashOnly:
	case e.Replayed:
		v.head(t)
		v.lines(t, e.Text)
	default:
		v.lines(t, e.Text)
	}
}

// keeps is how much of a task's output may be needed later.
func (v *View) keeps(t *task) int {
	if v.grouped(t) || t.mode == LogsErrorsOnly {
		return groupMost
	}
	return againMost
}

func (v *View) showEnd(t *task, e orchestrator.Ended) {
	switch {
	case e.Status == run.Skipped || e.Status == run.Aborted && e.Attempts == 0:
	case v.grouped(t):
		v.block(t, e)
	default:
		v.streamEnd(t, e)
	}
	if e.Unsaved != "" && t.mode != LogsNone {
		v.say(t, v.paint.warn("not saved: ")+clean.Message(e.Unsaved))
	}
	if e.Status != run.Failed {
		t.held = held{}
	}
}

// showUploading says once why nothing ends; on a terminal the live part does.
func (v *View) showUploading(e orchestrator.Uploading) {
	if !v.uploading && v.o.Size == nil {
		v.breakLine()
		v.text.WriteString(uploading(e.Left) + "\n")
	}
	v.uploading = true
}

func uploading(left int) string { return "uploading " + plural(left, "result") + "…" }

func (v *View) streamEnd(t *task, e orchestrator.Ended) {
	switch {
	case e.Status == run.Cached && !t.headed:
		v.head(t)
	case e.Status == run.Failed && t.mode == LogsErrorsOnly:
		v.all(t)
	}
	v.endLine(t)
	if e.Status == run.Failed && t.mode != LogsNone {
		v.say(t, v.paint.bad("failed: "+verdict(e)))
	}
}

// all writes everything that was kept of a task's output.
func (v *View) all(t *task) {
	if t.held.cut {
		v.say(t, v.paint.faint("the beginning of its output is left out"))
	}
	for _, text := range t.held.parts {
		v.lines(t, text)
	}
	v.endLine(t)
}

// block is a task's output in one piece. GitHub folds that of tasks which
// succeeded.
func (v *View) block(t *task, e orchestrator.Ended) {
	failed := e.Status == run.Failed
	if t.mode == LogsNone || t.mode == LogsErrorsOnly && !failed {
		return
	}
	output := t.mode == LogsFull || t.mode == LogsErrorsOnly || t.mode == LogsNewOnly && e.Status != run.Cached
	fold := v.o.GitHub && !failed && output && t.held.size > 0
	bare := v.o.Bare
	v.o.Bare = v.o.Bare || v.o.GitHub
	if fold {
		v.breakLine()
		fmt.Fprintf(&v.text, "::group::%s %s\n", label(t.info.Task), took(e.TookMS))
	}
	v.head(t)
	if output {
		v.all(t)
	}
	if fold {
		v.text.WriteString("::endgroup::\n")
	}
	v.o.Bare = bare
	if failed {
		v.say(t, v.paint.bad("failed: "+verdict(e)))
		v.annotate(t, e)
	}
}

// verdict says how a task failed.
func verdict(e orchestrator.Ended) string {
	s := ending(e.Exit, e.Signal, e.TimedOut)
	if e.Error != "" {
		s = clean.Message(e.Error)
	}
	s += " after " + took(e.TookMS)
	if e.Attempts > 1 {
		s += fmt.Sprintf(", attempt %d", e.Attempts)
	}
	return s
}

func ending(exit int, signal string, late bool) string {
	switch {
	case late:
		return "it took too long"
	case signal != "":
		return "ended by " + clean.Text(signal)
	}
	return fmt.Sprintf("exit code %d", exit)
}

func (v *View) showWarning(t *task, e orchestrator.Warning) {
	text := v.paint.warn("warning: ") + clean.Message(e.Message)
	if t != nil {
		v.say(t, text)
	} else {
		v.breakLine()
		v.text.WriteString(text + "\n")
	}
	if v.o.GitHub {
		v.text.WriteString("::warning::" + escape(clean.Message(e.Message)) + "\n")
	}
}
