package history

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
)

// A journal spares a run that teaches nothing the database: it begins with what
// such a run needs to know (the head), and is followed by the runs that came
// since. Whoever opens the database takes these over.
//
// It is a file for each workspace and platform, of frames: length and CRC-32C,
// four bytes each, and what they are of.
type journal struct{ file string }

const (
	frameHead = 8
	// Past these the next run goes to the database, and takes the others along.
	journalRuns  = 64
	journalBytes = 4 << 20
	// journalAge is when a workspace counts as given up: its journal goes.
	journalAge = 30 * 24 * time.Hour
	// journalWait bounds how long another process is waited for; it holds a
	// journal for milliseconds.
	journalWait = 10 * time.Second
)

// head is what the database knows of a workspace on a platform.
type head struct {
	print   []byte
	figures map[id.Task]Figures
}

func (h *History) journal(root, platform string) journal {
	return journal{filepath.Join(h.journals(), digest.Of([]byte(platform+"\x00"+root)).Short())}
}

// journals is their folder.
func (h *History) journals() string { return h.path + ".journals" }

// open opens the file, and nothing else that may be in its place.
func (j journal) open(flags int) (*os.File, error) {
	f, err := os.OpenFile(j.file, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(fs.ErrInvalid, err, f.Close())
	}
	return f, nil
}

// lock keeps other processes from writing. The file is made if there is none;
// what is none goes.
func (j journal) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(j.file), 0o700); err != nil {
		return nil, home.DiskError(err, "history")
	}
	if st, err := os.Lstat(j.file); err == nil && !st.Mode().IsRegular() {
		if err := os.Remove(j.file); err != nil {
			return nil, errs.New(errs.FailedPrecondition, "%s is no file of the history: take it away (%w)", j.file, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, journalWait)
	defer cancel()
	l := flock.New(j.file, flock.SetPermissions(0o600))
	ok, err := l.TryLockContext(ctx, 2*time.Millisecond)
	switch {
	case ok:
		return func() { _ = l.Unlock() }, nil // the kernel does it at the latest
	case errors.Is(err, context.DeadlineExceeded):
		return nil, errs.New(errs.Unavailable, "another brood holds %s: try again when that is done", j.file)
	}
	return nil, home.DiskError(err, "history")
}

// head reads the head; ok is false when there is none that can be believed.
func (j journal) head() (h head, ok bool) {
	f, err := j.open(os.O_RDONLY)
	if err != nil {
		return h, false
	}
	defer f.Close()
	b, err := readFrame(f)
	if err != nil {
		return h, false
	}
	return decodeHead(b)
}

// add appends a run when the journal's head has its fingerprint and there is
// room; full says that the database is to take it. The caller has the lock.
func (j journal) add(print, record []byte) (full bool, err error) {
	f, err := j.open(os.O_RDWR)
	if err != nil {
		return true, nil // without a journal there is the database
	}
	defer f.Close()
	runs := 0
	b, err := readFrame(f)
	known, ok := decodePrint(b)
	if err != nil || !ok || string(known) != string(print) {
		return true, nil
	}
	end := frameSize(b)
	for ; ; runs++ {
		var lead [frameHead]byte
		if _, err := f.ReadAt(lead[:], end); err != nil || runs > journalRuns {
			break // the end, or it is full
		}
		end += frameHead + int64(binary.LittleEndian.Uint32(lead[:]))
	}
	frame := appendFrame(nil, record)
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size != end || runs >= journalRuns || size+int64(len(frame)) > journalBytes {
		return true, nil
	}
	if _, err := f.Write(frame); err != nil {
		return false, errors.Join(home.DiskError(err, "history"), f.Truncate(size))
	}
	return false, nil
}

// runs reads the runs that are whole; end is where the head ends.
// The caller has the lock.
func (j journal) runs() (all []Run, end int64, err error) {
	f, err := j.open(os.O_RDONLY)
	if err != nil {
		return nil, 0, home.DiskError(err, "history")
	}
	defer f.Close()
	b, err := readFrame(f)
	if err != nil && !errors.Is(err, errDamaged) {
		return nil, 0, nil // nothing in it can be believed
	}
	if _, ok := decodeHead(b); ok {
		end = frameSize(b)
	}
	for {
		b, err := readFrame(f)
		if errors.Is(err, errDamaged) {
			continue
		}
		if err != nil {
			return all, end, nil // the end, or what a crash left of a run
		}
		if r, ok := decodeRun(b); ok {
			all = append(all, r)
		}
	}
}

// distrust makes the head one that nobody believes; the runs stay.
func (j journal) distrust() error {
	f, err := j.open(os.O_RDWR)
	if err != nil {
		return home.DiskError(err, "history")
	}
	defer f.Close()
	b, err := readFrame(f)
	if err != nil || len(b) == 0 {
		return nil // there is none
	}
	b[0] = 0
	_, err = f.WriteAt(appendFrame(nil, b), 0)
	return home.DiskError(err, "history")
}

// begin leaves only a head.
func (j journal) begin(h head) error {
	f, err := j.open(os.O_RDWR | os.O_TRUNC)
	if err != nil {
		return home.DiskError(err, "history")
	}
	defer f.Close()
	_, err = f.Write(appendFrame(nil, h.encode()))
	return home.DiskError(err, "history")
}

// encodeRun writes a run and its tasks, a line of JSON and what follows it.
func encodeRun(r *Run) ([]byte, error) {
	line, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return append(append(line, '\n'), r.tasks...), nil
}

func decodeRun(b []byte) (r Run, ok bool) {
	line, tasks, ok := bytes.Cut(b, []byte{'\n'})
	if !ok || json.Unmarshal(line, &r) != nil {
		return r, false
	}
	r.tasks = tasks
	return r, true
}

func frameSize(b []byte) int64 { return frameHead + int64(len(b)) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendFrame(to, b []byte) []byte {
	to = binary.LittleEndian.AppendUint32(to, uint32(len(b)))
	to = binary.LittleEndian.AppendUint32(to, crc32.Checksum(b, castagnoli))
	return append(to, b...)
}

var errDamaged = errors.New("a frame is damaged")

func readFrame(f io.Reader) ([]byte, error) {
	var lead [frameHead]byte
	if _, err := io.ReadFull(f, lead[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(lead[:])
	if n == 0 || n > journalBytes {
		return nil, io.ErrUnexpectedEOF
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, err
	}
	if crc32.Checksum(b, castagnoli) != binary.LittleEndian.Uint32(lead[4:]) {
		return nil, errDamaged
	}
	return b, nil
}

// headFormat is the first byte of a head.
const headFormat = 1

func (h head) encode() []byte {
	b := append([]byte{headFormat, byte(len(h.print))}, h.print...)
	for task, f := range h.figures {
		b = binary.AppendUvarint(b, uint64(len(task)))
		b = append(b, task...)
		for _, v := range []int64{int64(f.Runs), int64(f.Failures), int64(f.Wall), int64(f.Wall90), int64(f.CPU), f.PeakMemory} {
			b = binary.AppendVarint(b, v)
		}
		b = append(b, bit(f.Sampled)|bit(f.Flaky)<<1)
	}
	return b
}

func bit(on bool) byte {
	if on {
		return 1
	}
	return 0
}

func decodePrint(b []byte) (print []byte, ok bool) {
	if len(b) < 2 || b[0] != headFormat || len(b) < 2+int(b[1]) {
		return nil, false
	}
	return b[2 : 2+int(b[1])], true
}

func decodeHead(b []byte) (h head, ok bool) {
	if h.print, ok = decodePrint(b); !ok {
		return h, false
	}
	b = b[2+len(h.print):]
	h.figures = map[id.Task]Figures{}
	for len(b) > 0 {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return h, false
		}
		task := id.Task(b[n : n+int(size)])
		b = b[n+int(size):]
		var v [6]int64
		for i := range v {
			x, n := binary.Varint(b)
			if n <= 0 {
				return h, false
			}
			v[i], b = x, b[n:]
		}
		if len(b) == 0 {
			return h, false
		}
		h.figures[task] = Figures{
			Runs: int(v[0]), Failures: int(v[1]), Wall: time.Duration(v[2]), Wall90: time.Duration(v[3]), CPU: time.Duration(v[4]), PeakMemory: v[5],
			Sampled: b[0]&1 != 0, Flaky: b[0]&2 != 0,
		}
		b = b[1:]
	}
	return h, true
}
