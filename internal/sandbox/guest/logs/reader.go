package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Reader reads a log from its oldest record on.
type Reader struct {
	files      [2]*os.File
	current    int
	generation uint64 // 0: no segment found yet
	offset     int64  // of buf in the segment
	buf        []byte
	missed     bool
	skip       int64 // lines still to be left out, for Tail
	last       Mark  // of the entry that came last
	bounded    bool  // by Bound: Next ends at end
	end        Place
}

// Place is where a record begins.
type Place struct {
	Generation uint64
	Offset     int64
}

// Before reports whether p comes before q.
func (p Place) Before(q Place) bool {
	return p.Generation < q.Generation || p.Generation == q.Generation && p.Offset < q.Offset
}

// Mark is a byte of a stream: of the record at a place, behind so many bytes.
type Mark struct {
	Place
	Skip int
}

// Open opens a log by its two files. They must exist; they may be empty.
func Open(paths [2]string) (*Reader, error) {
	r := &Reader{}
	for i, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open log: %w", err), r.Close())
		}
		r.files[i] = f
	}
	return r, nil
}

// Close closes the files.
func (r *Reader) Close() error {
	var all error
	for _, f := range r.files {
		if f != nil {
			all = errors.Join(all, f.Close())
		}
	}
	return all
}

// Missed reports whether the writer overtook this reader, so that records
// between two entries are gone, and forgets it.
func (r *Reader) Missed() bool {
	m := r.missed
	r.missed = false
	return m
}

// Next returns the next entry; its data is valid until the next call. io.EOF
// means there is no more now; later calls go on. What is torn at a segment's
// end is left out.
func (r *Reader) Next() (Entry, error) {
	for {
		e, err := r.read()
		if err != nil {
			return Entry{}, err
		}
		if r.skip > 0 {
			all := len(e.Data)
			e.Data = r.leaveOut(e.Data)
			r.last.Skip = all - len(e.Data)
		}
		if len(e.Data) > 0 {
			return e, nil
		}
	}
}

// At is where the data of the last entry begins.
func (r *Reader) At() Mark { return r.last }

// Bound makes Next end with what is written now: who writes without a pause
// could else be read for ever.
func (r *Reader) Bound() error {
	r.bounded = true
	for i, f := range r.files {
		g, err := r.generationOf(i)
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		if g >= r.end.Generation {
			r.end = Place{Generation: g, Offset: info.Size()}
		}
	}
	return nil
}

// Seek goes to a place that At told of the same log. When the segment is no
// longer there, what comes next is the oldest that is kept.
func (r *Reader) Seek(p Place) error {
	for i := range r.files {
		g, err := r.generationOf(i)
		if err != nil {
			return err
		}
		if g == p.Generation && g > 0 {
			r.current, r.generation, r.offset, r.buf = i, g, max(p.Offset, int64(segmentHeader)), nil
			return nil
		}
	}
	r.generation, r.buf, r.missed = 0, nil, p.Generation > 0
	return nil
}

// Tail moves on so that at most the last lines, counted over both streams,
// come next. An unfinished last line counts.
func (r *Reader) Tail(lines int) error {
	probe := &Reader{files: r.files, current: r.current, generation: r.generation, offset: r.offset, bounded: r.bounded, end: r.end}
	var total int64
	open := false
	for {
		e, err := probe.read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		total += int64(bytes.Count(e.Data, []byte{'\n'}))
		open = e.Data[len(e.Data)-1] != '\n'
	}
	if open {
		total++
	}
	r.skip = max(0, total-int64(max(0, lines)))
	if lines <= 0 && open {
		// Nothing is wanted of a line that has no end yet either.
		r.current, r.generation, r.offset, r.buf, r.skip = probe.current, probe.generation, probe.offset, nil, 0
	}
	return nil
}

// Follow calls f for every entry, also those written later, until ctx ends
// (its error is returned) or f fails. It looks for news every interval.
func (r *Reader) Follow(ctx context.Context, interval time.Duration, f func(Entry) error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		e, err := r.Next()
		switch {
		case err == nil:
			if err := f(e); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		case errors.Is(err, io.EOF):
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-ticker.C:
			}
		default:
			return err
		}
	}
}

// leaveOut takes lines that Tail does not want from the front of data.
func (r *Reader) leaveOut(data []byte) []byte {
	for r.skip > 0 {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			return nil
		}
		data = data[i+1:]
		r.skip--
	}
	return data
}

// read returns the next entry as it stands in the files.
func (r *Reader) read() (Entry, error) {
	for {
		if r.generation == 0 {
			if found, err := r.enter(0); !found {
				return Entry{}, orEOF(err)
			}
		}
		e, size, v := parseRecord(r.buf)
		if v == whole {
			if r.bounded && !(Place{r.generation, r.offset}).Before(r.end) {
				return Entry{}, io.EOF
			}
			r.buf = r.buf[size:]
			r.last = Mark{Place: Place{r.generation, r.offset}}
			r.offset += int64(size)
			if len(e.Data) > 0 {
				return e, nil
			}
			continue
		}
		more, err := r.fill()
		if err != nil {
			return Entry{}, err
		}
		if more {
			continue
		}
		// Nothing more here. Only when a newer segment exists is this one
		// finished; one more look, for it may have grown before that.
		newer, err := r.newer()
		if err != nil || !newer {
			return Entry{}, orEOF(err)
		}
		if more, err = r.fill(); err != nil {
			return Entry{}, err
		} else if more {
			continue
		}
		if _, err := r.enter(r.generation); err != nil {
			return Entry{}, err
		}
	}
}

func orEOF(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}

// fill reads more of the current segment behind buf. False: there is no more
// that makes sense. A segment that was emptied meanwhile is left at once.
func (r *Reader) fill() (bool, error) {
	const block = recordHeader + MaxData
	b := make([]byte, block)
	n, err := r.files[r.current].ReadAt(b, r.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read log: %w", err)
	}
	// The generation is looked at after the data: what was read belongs to
	// it only if it is still the same.
	g, err := r.generationOf(r.current)
	if err != nil {
		return false, err
	}
	if g != r.generation {
		r.missed = true
		found, err := r.enter(r.generation)
		return found, err
	}
	r.buf = b[:n]
	_, _, v := parseRecord(r.buf)
	return v == whole, nil
}

// newer reports whether the other segment continues this one.
func (r *Reader) newer() (bool, error) {
	g, err := r.generationOf(1 - r.current)
	return g > r.generation, err
}

// enter goes to the oldest segment newer than after.
func (r *Reader) enter(after uint64) (bool, error) {
	best := -1
	var bestGeneration uint64
	for i := range r.files {
		g, err := r.generationOf(i)
		if err != nil {
			return false, err
		}
		if g > after && (best < 0 || g < bestGeneration) {
			best, bestGeneration = i, g
		}
	}
	if best < 0 {
		return false, nil
	}
	r.current, r.generation, r.offset, r.buf = best, bestGeneration, int64(segmentHeader), nil
	return true, nil
}

func (r *Reader) generationOf(i int) (uint64, error) {
	var head [segmentHeader]byte
	n, err := r.files[i].ReadAt(head[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("read log: %w", err)
	}
	return parseSegment(head[:n]), nil
}
