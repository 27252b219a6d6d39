package runs

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"brood/internal/base/errs"
	"brood/internal/edge/view"
	"brood/internal/run/orchestrator"
)

// writeReports writes the files that the flags ask for, and CI's summary. One
// that cannot be written keeps none of the others.
func (a *app) writeReports(ctx context.Context, f runFlags, r *orchestrator.Report) error {
	summary, err := a.summaryFile(f, r)
	all := []error{err}
	for _, file := range []struct {
		path  string
		write func(io.Writer) error
	}{
		{f.trace, r.WriteTrace},
		{f.junit, r.WriteJUnit},
		{f.report, r.WriteJSON},
		{summary, r.WriteJSON},
	} {
		if file.path == "" {
			continue
		}
		if err := a.write(ctx, file.path, file.write); err != nil {
			all = append(all, err)
		} else if file.path == summary {
			a.Say("all about the run is in %s", summary)
		}
	}
	return errors.Join(append(all, stepSummary(r))...)
}

// inHome is the value of --summarize alone: true and false are turbo's too.
const inHome = "true"

// summaryFile is where --summarize writes: in brood's home unless it says, for
// a new file in the workspace would be an input of its tasks.
func (a *app) summaryFile(f runFlags, r *orchestrator.Report) (string, error) {
	if f.summarize != inHome {
		return f.summarize, nil
	}
	h, err := a.OwnDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(h.Dir(), "runs", r.Run+".json"), nil
}

// stepSummary adds the run to the page of a GitHub workflow's step.
func stepSummary(r *orchestrator.Report) error {
	path := os.Getenv("GITHUB_STEP_SUMMARY")
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return errs.New(errs.FailedPrecondition, "the step summary of the workflow: %w", err)
	}
	err = view.WriteSummary(file, r)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}
