package orchestrator

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"

	"brood/internal/base/id"
	"brood/internal/run"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Time     float64      `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     float64     `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Time    float64       `xml:"time,attr"`
	Failure *junitMessage `xml:"failure,omitempty"`
	Skipped *junitMessage `xml:"skipped,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
}

// WriteJUnit writes the outcomes as a JUnit report: a suite for each project,
// a case for each task.
func (r *Report) WriteJUnit(w io.Writer) error {
	all := junitSuites{Name: "brood run", Time: seconds(r.Finished.WallMS)}
	byProject := map[id.Project]int{}
	outcomes := slices.Clone(r.Ended)
	slices.SortFunc(outcomes, func(a, b Ended) int {
		if a.Task < b.Task {
			return -1
		}
		return 1
	})
	for _, e := range outcomes {
		project, name := e.Task.Split()
		at, known := byProject[project]
		if !known {
			at = len(all.Suites)
			byProject[project] = at
			all.Suites = append(all.Suites, junitSuite{Name: string(project)})
		}
		s := &all.Suites[at]
		c := junitCase{Name: name, Class: string(project), Time: seconds(e.TookMS)}
		s.Tests++
		s.Time += c.Time
		all.Tests++
		switch e.Status {
		case run.Failed:
			c.Failure = &junitMessage{Message: failure(e)}
			s.Failures++
			all.Failures++
		case run.Skipped, run.Aborted:
			c.Skipped = &junitMessage{Message: skip(e)}
			s.Skipped++
			all.Skipped++
		}
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	out := xml.NewEncoder(w)
	out.Indent("", "  ")
	err := errors.Join(out.Encode(all), out.Close())
	if err == nil {
		_, err = io.WriteString(w, "\n")
	}
	return err
}

func failure(e Ended) string {
	switch {
	case e.Error != "":
		return e.Error
	case e.TimedOut:
		return "it took too long"
	case e.Signal != "":
		return "ended by " + e.Signal
	}
	return fmt.Sprintf("exit code %d", e.Exit)
}

func skip(e Ended) string {
	if e.Cause != "" {
		return fmt.Sprintf("%s failed", e.Cause)
	}
	return "the run was stopped"
}
