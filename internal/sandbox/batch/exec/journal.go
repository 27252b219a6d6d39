package exec

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"brood/internal/base/errs"
	"brood/internal/sandbox/batch"
)

// journal is the file of all events that a batch was given, one a line: since
// a batch is a function of its events, it is the batch. A last line that was
// cut off by a crash never took effect and is dropped.
type journal struct {
	f *os.File
	w *bufio.Writer
}

type line struct {
	At    int64           `json:"at"` // ns since 1970
	Kind  string          `json:"kind"`
	Event json.RawMessage `json:"event"`
}

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, errs.New(errs.InsufficientDisk, "journal of a batch: %w", err)
	}
	return &journal{f: f, w: bufio.NewWriter(f)}, nil
}

func (j *journal) append(at time.Time, ev batch.Event) error {
	kind, err := kindOf(ev)
	if err != nil {
		return err
	}
	body, err := json.Marshal(ev)
	if err != nil {
		return err
	}
	text, err := json.Marshal(line{At: at.UnixNano(), Kind: kind, Event: body})
	if err != nil {
		return err
	}
	if _, err := j.w.Write(append(text, '\n')); err != nil {
		return errs.New(errs.InsufficientDisk, "journal of a batch: %w", err)
	}
	if err := j.w.Flush(); err != nil {
		return errs.New(errs.InsufficientDisk, "journal of a batch: %w", err)
	}
	return nil
}

func (j *journal) close() error { return j.f.Close() }

// readJournal gives each event of a journal to step, in order, and cuts off
// what a crash left of a last line. From a line that cannot be read on it is
// cut off too, with an error of code DataLoss.
func readJournal(path string, step func(time.Time, batch.Event)) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<16)
	var good int64
	for {
		text, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return f.Truncate(good)
		}
		if err != nil {
			return err
		}
		at, ev, err := decode(text)
		if err != nil {
			return errors.Join(errs.New(errs.DataLoss, "journal %s, byte %d: %w", path, good, err), f.Truncate(good))
		}
		step(at, ev)
		good += int64(len(text))
	}
}

func decode(text []byte) (time.Time, batch.Event, error) {
	var l line
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&l); err != nil {
		return time.Time{}, nil, err
	}
	read, ok := kinds[l.Kind]
	if !ok {
		return time.Time{}, nil, errs.New(errs.DataLoss, "no such event: %.40q", l.Kind)
	}
	ev, err := read(l.Event)
	return time.Unix(0, l.At), ev, err
}

// kinds reads each kind of event.
var kinds = map[string]func([]byte) (batch.Event, error){
	"tick": read[batch.Tick], "machines": read[batch.Machines],
	"reserved": read[batch.Reserved], "reserve_refused": read[batch.ReserveRefused],
	"sync_progress": read[batch.SyncProgress], "synced": read[batch.Synced], "sync_failed": read[batch.SyncFailed],
	"fork_started": read[batch.ForkStarted], "fork_ready": read[batch.ForkReady], "fork_failed": read[batch.ForkFailed],
	"fork_removed": read[batch.ForkRemoved], "machine_failed": read[batch.MachineFailed], "beat": read[batch.Beat],
	"cancel": read[batch.Cancel], "restarted": read[batch.Restarted],
}

func read[E batch.Event](b []byte) (batch.Event, error) {
	var e E
	err := json.Unmarshal(b, &e)
	return e, err
}

func kindOf(ev batch.Event) (string, error) {
	switch ev.(type) {
	case batch.Tick:
		return "tick", nil
	case batch.Machines:
		return "machines", nil
	case batch.Reserved:
		return "reserved", nil
	case batch.ReserveRefused:
		return "reserve_refused", nil
	case batch.SyncProgress:
		return "sync_progress", nil
	case batch.Synced:
		return "synced", nil
	case batch.SyncFailed:
		return "sync_failed", nil
	case batch.ForkStarted:
		return "fork_started", nil
	case batch.ForkReady:
		return "fork_ready", nil
	case batch.ForkFailed:
		return "fork_failed", nil
	case batch.ForkRemoved:
		return "fork_removed", nil
	case batch.MachineFailed:
		return "machine_failed", nil
	case batch.Beat:
		return "beat", nil
	case batch.Cancel:
		return "cancel", nil
	case batch.Restarted:
		return "restarted", nil
	}
	return "", errs.New(errs.Internal, "an event %T cannot be written", ev)
}
