//go:build linux

package pid1

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"brood/internal/base/errs"
)

// endOfTransmission is what a terminal in its usual mode takes for the end of
// input (VEOF).
const endOfTransmission = 4

// stdinStep bounds what is written to a program inside the gate, in bytes.
const stdinStep = 64 << 10

// writeStdin gives a program input, which belongs at offset of all of it; -1
// is behind what it has. It returns how much the program has been given.
func (x *exec) writeStdin(ctx context.Context, g *gate, offset int64, data []byte) (uint64, error) {
	release, err := x.lockInput(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	x.mu.Lock()
	f, have := x.stdin, x.stdinN
	x.mu.Unlock()
	if offset >= 0 {
		if uint64(offset) > have {
			return have, errs.New(errs.FailedPrecondition, "input at %d is missing: the program has %d bytes; send from there", offset, have)
		}
		data = data[min(uint64(len(data)), have-uint64(offset)):]
	}
	if f == nil {
		return have, errs.New(errs.FailedPrecondition, "exec %s takes no input: it was started without, or its input is closed", x.id)
	}
	for len(data) > 0 {
		n, err := writeSome(ctx, g, f, data[:min(len(data), stdinStep)])
		data = data[n:]
		x.mu.Lock()
		x.stdinN += uint64(n)
		have = x.stdinN
		x.mu.Unlock()
		if err != nil {
			return have, err
		}
	}
	return have, nil
}

// lockInput makes the caller the only writer to the program's input.
func (x *exec) lockInput(ctx context.Context) (release func(), err error) {
	select {
	case x.input <- struct{}{}:
		return func() { <-x.input }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// closeStdin ends a program's input, behind writes that are under way.
func (x *exec) closeStdin(ctx context.Context, g *gate) error {
	release, err := x.lockInput(ctx)
	if err != nil {
		return err
	}
	defer release()
	if x.tty != nil {
		_, err := writeSome(ctx, g, x.tty, []byte{endOfTransmission})
		return err
	}
	if err := g.enter(ctx); err != nil {
		return err
	}
	defer g.leave()
	x.mu.Lock()
	f := x.takeStdin()
	x.mu.Unlock()
	closeQuietly(f)
	return nil
}

// writeSome writes at least one byte unless it fails, waiting for room as
// long as ctx lasts. It is inside the gate only while it does not wait.
func writeSome(ctx context.Context, g *gate, f *os.File, data []byte) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, inputError(err)
	}
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = f.SetWriteDeadline(time.Unix(1, 0))
		close(expired)
	})
	defer func() {
		if !stop() {
			<-expired
			_ = f.SetWriteDeadline(time.Time{})
		}
	}()
	for {
		n, failed := 0, error(nil)
		err := raw.Write(func(fd uintptr) bool {
			n, failed = 0, nil
			if !g.tryEnter() {
				return true
			}
			defer g.leave()
			n, failed = unix.Write(int(fd), data)
			return !errors.Is(failed, unix.EAGAIN)
		})
		switch {
		case ctx.Err() != nil && n <= 0:
			return 0, ctx.Err()
		case err != nil:
			return 0, inputError(err)
		case n > 0:
			return n, nil
		case failed != nil && !errors.Is(failed, unix.EINTR):
			return 0, inputError(failed)
		}
		if err := g.pass(ctx); err != nil {
			return 0, err
		}
	}
}

func inputError(err error) error {
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EIO) || errors.Is(err, os.ErrClosed) {
		return errs.New(errs.FailedPrecondition, "the program takes no more input: it closed it or ended")
	}
	return err
}
