package orchestrator

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"

	"brood/internal/run"
)

// traceEvent is one entry of the trace format of Chrome, times in microseconds.
type traceEvent struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	Start int64          `json:"ts"`
	Took  int64          `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// WriteTrace writes when what ran, in the trace format of Chrome: a row for
// each place in which tasks ran after each other.
func (r *Report) WriteTrace(w io.Writer) error {
	out := bufio.NewWriter(w)
	if _, err := out.WriteString("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"); err != nil {
		return err
	}
	events := r.traceEvents()
	for i, e := range events {
		b, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if i < len(events)-1 {
			b = append(b, ',')
		}
		if _, err := out.Write(append(b, '\n')); err != nil {
			return err
		}
	}
	_, err := out.WriteString("]}\n")
	return errors.Join(err, out.Flush())
}

func (r *Report) traceEvents() []traceEvent {
	ran := make([]Ended, 0, len(r.Ended))
	for _, e := range r.Ended {
		if e.Attempts > 0 || e.Status == run.Cached {
			ran = append(ran, e)
		}
	}
	slices.SortStableFunc(ran, func(a, b Ended) int { return int(a.BeganMS - b.BeganMS) })
	var free []int64 // when each row is free again
	events := []traceEvent{{Name: "process_name", Phase: "M", PID: 1, Args: map[string]any{"name": "brood run " + r.Run}}}
	for _, e := range ran {
		row := slices.IndexFunc(free, func(at int64) bool { return at <= e.BeganMS })
		if row < 0 {
			row = len(free)
			free = append(free, 0)
		}
		free[row] = e.BeganMS + e.TookMS
		args := map[string]any{"status": e.Status, "key": e.Key}
		if e.Attempts > 0 {
			args["exit"], args["attempts"], args["cpuMs"], args["peakMemory"] = e.Exit, e.Attempts, e.CPUMS, e.PeakMemory
		}
		events = append(events, traceEvent{
			Name: string(e.Task), Cat: string(e.Status), Phase: "X", Start: e.BeganMS * 1000, Took: max(1, e.TookMS*1000), PID: 1, TID: row + 1, Args: args,
		})
	}
	return events
}

// WriteJSON writes the whole report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(r)
}

// seconds is a number of milliseconds as JUnit has it.
func seconds(ms int64) float64 { return (time.Duration(ms) * time.Millisecond).Seconds() }
