//go:build linux

package pid1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/sandbox/guest/proto"
)

const (
	hookDir = "etc/brood/on-fork.d"
	// defaultHookLimit is for all hooks together. It leaves the host's own
	// limit of 10 s room for the rest of the handshake.
	defaultHookLimit = 8 * time.Second
	// hookTail is how much of a failed hook's output is told, in bytes.
	hookTail = 2 << 10
)

// hooks runs the executable files of the hook folder in the order of their
// names, while user processes are still frozen.
func (r *renewal) hooks(ctx context.Context) error {
	entries, err := os.ReadDir(r.path(hookDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	limit := time.Duration(r.args.HookMillis) * time.Millisecond
	if limit <= 0 {
		limit = defaultHookLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, e := range entries {
		path := r.path(hookDir + "/" + e.Name())
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		if err := r.s.hook(ctx, path, r.args); err != nil {
			return errs.New(errs.FailedPrecondition, "on-fork hook %s: %w", e.Name(), err)
		}
		r.note("hook", e.Name(), nil)
	}
	return nil
}

// tail keeps the last bytes of an output, as a pump's sink.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) room() int                  { return pumpBuffer }
func (t *tail) wait(context.Context) error { return nil }

func (t *tail) put(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - hookTail; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
}

// hook runs one hook to its end. When ctx ends first, its group is killed.
// What it started in the background goes on, without an output.
func (s *Server) hook(ctx context.Context, path string, a proto.IdentityArgs) error {
	p, err := s.prepare(proto.Command{Argv: []string{path}, Env: []string{
		"BROOD_NAME=" + a.Name, "BROOD_INDEX=" + strconv.Itoa(a.Index), "BROOD_BATCH=" + a.Batch, "BROOD_UUID=" + a.UUID,
	}}, false)
	if err != nil {
		return err
	}
	var said tail
	// A gate of its own: the server's is shut while this runs.
	out, fd, err := pipe(true)
	if err != nil {
		return err
	}
	pump, err := newPump(out, newGate(), &said)
	if err != nil {
		return errors.Join(err, out.Close(), unix.Close(fd))
	}
	null, err := devNull()
	if err != nil {
		return errors.Join(err, out.Close(), unix.Close(fd))
	}
	ch, err := s.children.start(p, [3]int{int(null.Fd()), fd, fd}, false)
	err = errors.Join(err, null.Close(), unix.Close(fd))
	if err != nil {
		return errors.Join(err, out.Close())
	}
	g := life.NewGroup(ctx)
	g.Go("hook output", func(ctx context.Context) error { pump.run(ctx); return nil })
	timeout := false
	select {
	case <-ch.done:
	case <-ctx.Done():
		timeout = true
		_ = s.children.signal(ch, 0, syscall.SIGKILL) // it may have ended just now
		<-ch.done
	}
	pump.now()
	if err := g.Stop(); err != nil {
		return err
	}
	return hookError(ch.status, timeout, said.buf)
}

func hookError(status proto.ExitStatus, timeout bool, said []byte) error {
	if status.Code == 0 {
		return nil
	}
	how := fmt.Sprintf("exit code %d", status.Code)
	switch {
	case timeout:
		how = "took too long and was killed"
	case status.Signal != "":
		how = "ended by " + status.Signal
	}
	if said = bytes.TrimSpace(said); len(said) > 0 {
		return fmt.Errorf("%s: %s", how, said)
	}
	return errors.New(how)
}
