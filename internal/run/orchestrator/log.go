package orchestrator

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"unicode/utf8"
)

const (
	// logInMemory is how much of a task's output is kept in memory; what is
	// longer goes to a file.
	logInMemory = 1 << 20
	// pendingMost is how much output waits for the listener; a task that writes
	// more waits itself.
	pendingMost = 256 << 10
)

// Log is the output of one attempt: all of it for the cache, and what the
// listener has not seen yet. The task writes; the loop takes. Safe for
// concurrent use.
type Log struct {
	dir  string // of the file, when it gets long
	kick func() // tells the loop that much is waiting

	whole sync.Mutex // guards the whole output, for those who write and read it
	head  bytes.Buffer
	file  *os.File
	size  int64
	err   error

	mu      sync.Mutex // guards what the loop takes
	room    *sync.Cond // pending was taken, or the end
	pending []byte
	ended   bool
}

func newLog(dir string, kick func()) *Log {
	l := &Log{dir: dir, kick: kick}
	l.room = sync.NewCond(&l.mu)
	return l
}

// Write takes a task's output. It never fails: a log that cannot be kept whole
// is noted, and the result then not saved.
func (l *Log) Write(p []byte) (int, error) {
	l.keep(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := p; len(rest) > 0; {
		free := pendingMost - len(l.pending)
		if free <= 0 && !l.ended {
			l.kick()
			l.room.Wait()
			continue
		}
		n := min(len(rest), max(free, 0))
		if l.ended {
			break // nobody listens any more
		}
		l.pending = append(l.pending, rest[:n]...)
		rest = rest[n:]
	}
	return len(p), nil
}

func (l *Log) keep(p []byte) {
	l.whole.Lock()
	defer l.whole.Unlock()
	l.size += int64(len(p))
	if l.err != nil {
		return
	}
	if l.file == nil && l.head.Len()+len(p) <= logInMemory {
		l.head.Write(p)
		return
	}
	if l.file == nil {
		if l.file, l.err = os.CreateTemp(l.dir, "brood-log-"); l.err != nil {
			return
		}
		if l.err = os.Remove(l.file.Name()); l.err != nil { // it lives as long as it is open
			return
		}
	}
	_, l.err = l.file.Write(p)
}

// take returns what the listener has not seen; the beginning of a character
// waits for its end, unless it is the last call.
func (l *Log) take(last bool) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.pending)
	if !last {
		n = wholeRunes(l.pending)
	}
	if n == 0 {
		return nil
	}
	p := l.pending[:n:n]
	l.pending = append([]byte(nil), l.pending[n:]...)
	l.room.Broadcast()
	return p
}

// wholeRunes is the length of p without a character that is not complete.
func wholeRunes(p []byte) int {
	for back := 1; back <= min(utf8.UTFMax-1, len(p)); back++ {
		if b := p[len(p)-back]; utf8.RuneStart(b) {
			if b >= utf8.RuneSelf && !utf8.FullRune(p[len(p)-back:]) {
				return len(p) - back
			}
			break
		}
	}
	return len(p)
}

// end lets writers go on without a listener.
func (l *Log) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.room.Broadcast()
}

// Size is how many bytes were written.
func (l *Log) Size() int64 {
	l.whole.Lock()
	defer l.whole.Unlock()
	return l.size
}

// Reader reads all that was written. It is called after the last Write.
func (l *Log) Reader() (io.Reader, error) {
	l.whole.Lock()
	defer l.whole.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	if l.file == nil {
		return bytes.NewReader(l.head.Bytes()), nil
	}
	return io.MultiReader(bytes.NewReader(l.head.Bytes()), io.NewSectionReader(l.file, 0, l.size-int64(l.head.Len()))), nil
}

// close gives back what the log holds.
func (l *Log) close() error {
	l.end()
	l.whole.Lock()
	defer l.whole.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.err = errors.Join(l.err, os.ErrClosed)
	return err
}
