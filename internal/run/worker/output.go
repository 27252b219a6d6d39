package worker

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/life"
)

// output is the pipe that a task's processes write to, and its reader.
type output struct {
	r, w   *os.File
	mask   *masker
	group  *life.Group
	failed error // of the writer that the caller gave; read after finish
	cut    bool
}

func newOutput(out io.Writer, secrets [][]byte) (*output, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, errs.New(errs.ResourceExhausted, "a pipe for the task's output: %w", err)
	}
	o := &output{r: r, w: w, mask: newMasker(out, secrets), group: life.NewGroup(context.Background())}
	o.group.Go("output", func(context.Context) error { o.pump(); return nil })
	return o, nil
}

// pump reads until every writer is gone or the time is over. When the output
// cannot be written any more it is read all the same: the task is not to
// stall or die of it.
func (o *output) pump() {
	buf := make([]byte, 32<<10)
	for {
		n, err := o.r.Read(buf)
		if n > 0 && o.failed == nil {
			_, o.failed = o.mask.Write(buf[:n])
		}
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				o.cut = !o.drain(buf)
			}
			break
		}
	}
	if o.failed == nil {
		o.failed = o.mask.Flush()
	}
	if o.cut && o.failed == nil {
		_, o.failed = io.WriteString(o.mask.out, "\n[brood] output ends here: a process that the task left behind still held it open\n")
	}
}

// pipeMost is the most that a pipe can hold: the system's limit for ordinary
// users.
const pipeMost = 1 << 20

// drain reads what lies in the pipe when the time is over: on a busy machine
// the reader may have had no turn. It says whether that was the end.
func (o *output) drain(buf []byte) (ended bool) {
	raw, err := o.r.SyscallConn()
	if err != nil || o.r.SetReadDeadline(time.Time{}) != nil {
		return false
	}
	for left := pipeMost; left > 0; {
		var n int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, failed = syscall.Read(int(fd), buf)
			return true // does not wait
		})
		if err != nil || failed != nil {
			return false
		}
		if n <= 0 {
			return true
		}
		left -= n
		if o.failed == nil {
			_, o.failed = o.mask.Write(buf[:n])
		}
	}
	return false
}

// finish waits for the end of the output, for at most limit.
func (o *output) finish(limit time.Duration) {
	o.w.Close()
	// A pipe that knows no deadlines would hold the result as long as a child
	// holds the pipe; closing it ends the reader as well.
	if err := o.r.SetReadDeadline(time.Now().Add(limit)); err != nil {
		o.r.Close()
	}
	_ = o.group.Wait() // the pump returns no error
	o.r.Close()
}

func (o *output) err() error {
	if o.failed == nil {
		return nil
	}
	return errs.New(errs.CodeOf(o.failed), "the task's output could not be written: %w", o.failed)
}
