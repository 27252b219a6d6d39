package runs

import (
	"bytes"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"brood/internal/base/errs"
	"brood/internal/edge/view"
	"brood/internal/run/orchestrator"
)

// writeReports writes the files that the flags ask for, and CI's summary.
func (a *app) writeReports(s *session, f runFlags, r *orchestrator.Report) error {
	summary, err := a.summaryFile(f, r)
	if err != nil {
		return err
	}
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
		if err := writeReport(file.path, file.write); err != nil {
			return err
		}
	}
	if summary != "" {
		a.Say("all about the run is in %s", summary)
	}
	return stepSummary(r)
}

// summaryFile is where --summarize writes: in brood's home unless it says, for
// a new file in the workspace would be an input of its tasks.
func (a *app) summaryFile(f runFlags, r *orchestrator.Report) (string, error) {
	if f.summarize != "-" {
		return f.summarize, nil
	}
	h, err := a.OwnDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(h.Dir(), "runs", r.Run+".json"), nil
}

// writeReport replaces a file by what write gives.
func writeReport(path string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return errs.New(errs.FailedPrecondition, "the folder of a report: %w", err)
	}
	if err := renameio.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return errs.New(errs.FailedPrecondition, "a report cannot be written: %w", err)
	}
	return nil
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
