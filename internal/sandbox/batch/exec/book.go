package exec

import (
	"context"
	"iter"
	"sync"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
	"brood/internal/sandbox/batch"
)

// Info is what is known of a batch.
type Info struct {
	ID        id.Batch       `json:"id"`
	Key       string         `json:"key,omitempty"` // the caller's, for calling once
	Request   batch.Request  `json:"request"`
	Total     int            `json:"total"`
	CreatedAt time.Time      `json:"created_at"`
	DoneAt    time.Time      `json:"done_at,omitzero"`
	Cancelled bool           `json:"cancelled,omitempty"`
	Note      string         `json:"note,omitempty"`    // what happened to the batch itself, for people
	Damaged   bool           `json:"damaged,omitempty"` // a part of its books was lost: Note says which
	Summary   *batch.Summary `json:"summary,omitempty"`
}

// record is a batch as it lies on disk.
type record struct {
	Info
	Rand    []byte         `json:"rand"`
	Rules   int            `json:"rules"` // batch.Rules of who began it: its journal means nothing under others
	Sources []batch.Source `json:"sources"`
	Records []batch.Record `json:"records,omitempty"` // of a batch that is done
}

var schema = home.Schema{Kind: "batch", Format: 1}

// book is one batch in memory: its records, for everybody who reads.
type book struct {
	mu      sync.Mutex // guards what follows; never held over I/O
	rec     record     // its ID, request and time of creation never change: they need no lock
	records []batch.Record
	changed chan struct{} // closed and replaced when records come
	done    bool
	halted  error // why it stands where it is while the daemon runs on

	post    chan batch.Event // to the goroutine that owns the batch
	stopped chan struct{}    // closed when it no longer reads
}

func newBook(rec record) *book {
	return &book{rec: rec, records: rec.Records, changed: make(chan struct{}), post: make(chan batch.Event, 256), stopped: make(chan struct{})}
}

// add gives records to the readers.
func (b *book) add(records []batch.Record) {
	if len(records) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records = append(b.records, records...)
	close(b.changed)
	b.changed = make(chan struct{})
}

// finish says that no more records come.
func (b *book) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.done {
		b.done = true
		close(b.changed)
		b.changed = make(chan struct{})
	}
}

// report gives an event to the batch. It waits while the queue is full, and
// drops the event when the batch has stopped: its journal knows what is open.
func (b *book) report(ev batch.Event) {
	select {
	case b.post <- ev:
	case <-b.stopped:
	}
}

// info returns the batch and its counts.
func (b *book) info() (i Info, ok, failed int, last uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.records {
		if r.Item != nil && r.Item.Error == "" {
			ok++
		} else if r.Item != nil {
			failed++
		}
		last = r.Seq
	}
	return b.rec.Info, ok, failed, last
}

// Batch is a caller's view of a batch.
type Batch struct{ b *book }

// ID returns the batch's id.
func (v Batch) ID() id.Batch { return v.b.rec.ID }

// Info returns what is known of the batch, how many forks are ready and have
// failed, and the number of the last record.
func (v Batch) Info() (i Info, ok, failed int, last uint64) { return v.b.info() }

// Items returns the forks that have ended, in the order they did.
func (v Batch) Items() []batch.Item {
	v.b.mu.Lock()
	defer v.b.mu.Unlock()
	var all []batch.Item
	for _, r := range v.b.records {
		if r.Item != nil {
			all = append(all, *r.Item)
		}
	}
	return all
}

// Records yields the records after the given number, first what there is, then
// what comes, until the summary. It ends with an error when ctx does, or when
// the daemon stops.
func (v Batch) Records(ctx context.Context, after uint64) iter.Seq2[batch.Record, error] {
	return func(yield func(batch.Record, error) bool) {
		for {
			v.b.mu.Lock()
			from := min(after, uint64(len(v.b.records)))
			fresh := v.b.records[from:]
			changed, done := v.b.changed, v.b.done
			v.b.mu.Unlock()
			for _, r := range fresh {
				if !yield(r, nil) {
					return
				}
				after = r.Seq
			}
			if len(fresh) > 0 {
				continue
			}
			if done {
				if err := v.unfinished(); err != nil {
					yield(batch.Record{}, err)
				}
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				yield(batch.Record{}, context.Cause(ctx))
				return
			}
		}
	}
}

// unfinished says why the last record is not the summary.
func (v Batch) unfinished() error {
	v.b.mu.Lock()
	defer v.b.mu.Unlock()
	if n := len(v.b.records); n > 0 && v.b.records[n-1].Done != nil {
		return nil
	}
	if v.b.halted != nil {
		return errs.New(errs.FailedPrecondition, "batch %s stands where it is: %w", v.b.rec.ID, v.b.halted)
	}
	return errs.New(errs.Unavailable, "the daemon stops: attach to batch %s again when it is back", v.b.rec.ID)
}

// halt says that the batch stands still and the daemon does not.
func (b *book) halt(why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.halted = why
}
