//go:build linux

package pid1

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"brood/internal/sandbox/guest/logs"
)

// sink takes what a pump read. room says how many bytes it takes now; wait
// returns when that may have changed.
type sink interface {
	room() int
	put(p []byte)
	wait(ctx context.Context) error
}

// pumpBuffer is what a pump reads at once, in bytes: all that a pipe holds.
const pumpBuffer = 64 << 10

// pumpBuffers are shared, because most pumps have nothing to do most of the
// time.
var pumpBuffers = sync.Pool{New: func() any { return new([pumpBuffer]byte) }}

// pump moves a program's output from a pipe or terminal into a sink.
type pump struct {
	f    *os.File
	raw  syscall.RawConn
	gate *gate
	sink sink

	mu    sync.Mutex // one reader at a time; reads do not block
	ended bool
}

// level is how much there is to read for a pump.
type level int

const (
	dry   level = iota // nothing now
	full               // more, but the sink takes none
	gated              // nobody may look
	ended              // never more
)

// newPump takes over fd, which must be non-blocking.
func newPump(f *os.File, g *gate, to sink) (*pump, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &pump{f: f, raw: raw, gate: g, sink: to}, nil
}

// run moves bytes until the program's end is closed or ctx ends.
func (p *pump) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, p.close)
	defer p.close()
	defer stop()
	for {
		var at level
		err := p.raw.Read(func(fd uintptr) bool {
			if !p.gate.tryEnter() {
				at = gated
				return true
			}
			defer p.gate.leave()
			at = p.drain(int(fd))
			return at != dry
		})
		if err == nil {
			switch at {
			case gated:
				err = p.gate.pass(ctx)
			case full:
				err = p.sink.wait(ctx)
			case ended:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// now moves what there is, also when the gate is shut, without waiting.
func (p *pump) now() level {
	at := ended
	// A file that is closed has nothing more: the error says only that.
	_ = p.raw.Control(func(fd uintptr) { at = p.drain(int(fd)) })
	return at
}

func (p *pump) drain(fd int) level {
	p.mu.Lock()
	defer p.mu.Unlock()
	buf := pumpBuffers.Get().(*[pumpBuffer]byte)
	defer pumpBuffers.Put(buf)
	for !p.ended {
		room := min(p.sink.room(), len(buf))
		if room <= 0 {
			return full
		}
		n, err := unix.Read(fd, buf[:room])
		switch {
		case n > 0:
			p.sink.put(buf[:n])
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return dry
		default:
			p.ended = true // the end, or EIO: no terminal is open any more
		}
	}
	return ended
}

func (p *pump) close() { _ = p.f.Close() } // reading ends; there is nothing to lose

// logSink writes a stream of the main command into the log. It always has
// room: what a disk does not take is dropped there.
type logSink struct {
	log    *logs.Writer
	stream logs.Stream
}

func (s logSink) room() int                  { return logs.MaxData }
func (s logSink) put(p []byte)               { s.log.Write(logs.Entry{Stream: s.stream, Time: time.Now(), Data: p}) }
func (s logSink) wait(context.Context) error { return nil }

// pipe returns a pipe: a non-blocking end for the server and a blocking
// descriptor for a program.
func pipe(programWrites bool) (ours *os.File, theirs int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, -1, os.NewSyscallError("pipe2", err)
	}
	mine, other := fds[1], fds[0]
	if programWrites {
		mine, other = other, mine
	}
	if err := unix.SetNonblock(mine, true); err != nil {
		return nil, -1, errors.Join(err, unix.Close(mine), unix.Close(other))
	}
	return os.NewFile(uintptr(mine), "pipe"), other, nil
}
