package logs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"brood/internal/base/errs"
)

// File is what a segment must be able to do; *os.File is one.
type File interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Stat() (os.FileInfo, error)
}

// Writer appends to a log. A write that fails is dropped, never retried: the
// program whose output it is must not wait for a disk. Dropped says how much
// was lost, and so does the log: in the place of what is missing stands an
// entry of stderr that says how many bytes it was, once something can be
// written again.
type Writer struct {
	mu         sync.Mutex // serialises writes; held over file I/O, which is the point
	files      [2]File
	limit      int64
	current    int
	offset     int64
	generation uint64 // 0: nothing written yet
	dropped    uint64
	lost       uint64 // of dropped, what the log does not say yet
	why        string // it was lost
	buf        []byte
}

// NewWriter returns a writer to two segment files opened for reading and
// writing. Call Detect before the first Write when they may have content.
func NewWriter(files [2]File) *Writer {
	return &Writer{files: files, limit: DefaultLimit}
}

// SetLimit sets the size at which a segment is closed; 0 is DefaultLimit.
func (w *Writer) SetLimit(bytes int64) {
	if bytes == 0 {
		bytes = DefaultLimit
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit = max(bytes, MinLimit)
}

// Detect looks at the files as they are now. When they are those this writer
// wrote, it goes on; when both are empty, the log starts anew: so a fork's log
// starts at the fork. Other content is kept as the older segment.
func (w *Writer) Detect() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var sizes [2]int64
	var generations [2]uint64
	for i, f := range w.files {
		info, err := f.Stat()
		if err != nil {
			return fmt.Errorf("log segment %d: %w", i, err)
		}
		sizes[i] = info.Size()
		head := make([]byte, segmentHeader)
		n, err := f.ReadAt(head, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("log segment %d: %w", i, err)
		}
		generations[i] = parseSegment(head[:n])
	}
	if w.generation != 0 && generations[w.current] == w.generation && sizes[w.current] == w.offset {
		return nil
	}
	w.generation, w.offset, w.current = 0, 0, 0
	w.lost = 0 // by another log
	if sizes[0] == 0 && sizes[1] == 0 {
		return nil
	}
	if generations[0] > generations[1] {
		w.current = 1
	}
	return w.open(w.current, max(generations[0], generations[1])+1)
}

// Write appends what a program wrote; it splits what is larger than MaxData.
func (w *Writer) Write(e Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	data := e.Data
	for len(data) > 0 {
		e.Data = data[:min(len(data), MaxData)]
		data = data[len(e.Data):]
		if err := w.append(e); err != nil {
			w.drop(len(e.Data), err)
		}
	}
}

// End is to be called when nothing more may come: it tells of what was lost
// last, if that can be written by now.
func (w *Writer) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost > 0 {
		_ = w.append(Entry{Stream: Stderr, Time: time.Now()}) // as before: it is dropped
	}
}

func (w *Writer) drop(n int, err error) {
	if w.lost == 0 {
		w.why = "it could not be written"
		if errs.DiskFull(err) {
			w.why = "the disk was full"
		}
	}
	w.dropped += uint64(n)
	w.lost += uint64(n)
}

// Dropped returns how many bytes could not be written.
func (w *Writer) Dropped() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

// append writes an entry, and before it what tells of those that were lost: in
// one piece, for where one fits and the other does not, it would be told of
// every piece that is lost.
func (w *Writer) append(e Entry) error {
	if w.generation == 0 {
		if err := w.open(w.current, 1); err != nil {
			return err
		}
	}
	w.buf = w.buf[:0]
	if w.lost > 0 {
		note := fmt.Appendf(nil, "[brood: %d bytes of output were lost: %s]\n", w.lost, w.why)
		w.buf = appendRecord(w.buf, Entry{Stream: Stderr, Time: e.Time, Data: note})
	}
	if len(e.Data) > 0 {
		w.buf = appendRecord(w.buf, e)
	}
	if w.offset+int64(len(w.buf)) > w.limit {
		if err := w.open(1-w.current, w.generation+1); err != nil {
			return err
		}
	}
	n, err := w.files[w.current].WriteAt(w.buf, w.offset)
	if err != nil {
		// Torn records would hide what comes behind them; cutting also
		// works on a full disk.
		if n > 0 {
			err = errors.Join(err, w.files[w.current].Truncate(w.offset))
		}
		return err
	}
	w.offset += int64(n)
	w.lost = 0
	return nil
}

// open empties a segment and makes it the current one.
func (w *Writer) open(i int, generation uint64) error {
	if err := w.files[i].Truncate(0); err != nil {
		return err
	}
	if _, err := w.files[i].WriteAt(appendSegment(nil, generation), 0); err != nil {
		return err
	}
	w.current, w.generation, w.offset = i, generation, int64(segmentHeader)
	return nil
}
