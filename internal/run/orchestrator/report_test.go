package orchestrator_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"strings"
	"testing"

	"brood/internal/base/id"
	"brood/internal/run"
	"brood/internal/run/orchestrator"
)

func TestReportFiles(t *testing.T) {
	w := newWorld()
	w.commands["p#a"] = exits(3)
	r := w.run(t.Context(), t, nil, "a", "b: a", "c")
	var b bytes.Buffer
	if err := r.WriteTrace(&b); err != nil {
		t.Fatal(err)
	}
	var trace struct{ TraceEvents []struct{ Name, Ph string } }
	if err := json.Unmarshal(b.Bytes(), &trace); err != nil || len(trace.TraceEvents) != 3 {
		t.Errorf("trace %s: %v", b.Bytes(), err)
	}
	b.Reset()
	if err := r.WriteJUnit(&b); err != nil {
		t.Fatal(err)
	}
	var junit struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
	}
	if err := xml.Unmarshal(b.Bytes(), &junit); err != nil || junit.Tests != 3 || junit.Failures != 1 || junit.Skipped != 1 {
		t.Errorf("junit %s: %v", b.String(), err)
	}
	if !strings.Contains(b.String(), `message="exit code 3"`) || !strings.Contains(b.String(), `message="p#a failed"`) {
		t.Errorf("junit %s", b.String())
	}
	b.Reset()
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var report struct {
		Run      string
		Tasks    []struct{ Task id.Task }
		Outcomes []struct{ Status run.Status }
		Summary  orchestrator.Finished
	}
	if err := json.Unmarshal(b.Bytes(), &report); err != nil || report.Run != "r" || len(report.Tasks) != 3 || len(report.Outcomes) != 3 || report.Summary.Failed != 1 {
		t.Errorf("report %s: %v", b.Bytes(), err)
	}
}
