package forks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"brood/client"
	"brood/internal/base/errs"
	"brood/internal/base/inherit"
	"brood/internal/home"
)

const (
	// startLimit bounds the wait for a daemon to answer: it adopts the
	// sandboxes there are before it does.
	startLimit = time.Minute
	// startPause is how often it is asked meanwhile.
	startPause = 10 * time.Millisecond
	// exitTaken is the status of a daemon in the background that found
	// another in its home (EX_TEMPFAIL of sysexits).
	exitTaken = 75
	// heldNotice is after how long of no answer a caller is told that another
	// daemon has the home; one that was reachable puts lost files back before.
	heldNotice = 3 * time.Second
	// heldLimit is how long one that was ready may not answer.
	heldLimit = 10 * time.Second
	// heldPause is how long to wait before the next look at its lock.
	heldPause = 200 * time.Millisecond
	// maxLog is the size at which the daemon's log is put aside for a new one.
	maxLog = 16 << 20
	// tailLines is how much of the log an error shows.
	tailLines = 4
)

// start starts a daemon and waits until it answers. Of many commands that do
// so at once one starts it, and the others wait with it.
func (a *app) start(ctx context.Context) (*client.Client, error) {
	h, err := a.Dir()
	if err != nil {
		return nil, err
	}
	if h, err = home.Open(h.Dir()); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	c, err := a.startLimited(limited, h)
	if limited.Err() != nil && ctx.Err() == nil && errs.Is(err, errs.DeadlineExceeded) {
		err = unanswered(h, startLimit)
	}
	return c, err
}

func (a *app) startLimited(ctx context.Context, h *home.Home) (*client.Client, error) {
	for {
		lock, err := h.TryLock("start")
		if err == nil {
			c, err := a.startLocked(ctx, h)
			return c, errors.Join(err, lock.Unlock())
		}
		if !errs.Is(err, errs.AlreadyExists) {
			return nil, err
		}
		if c, err := a.reach(ctx); !absent(err) {
			return c, err
		}
		if err := pause(ctx, startPause); err != nil {
			return nil, err
		}
	}
}

// startLocked is start for the one that holds the lock.
func (a *app) startLocked(ctx context.Context, h *home.Home) (*client.Client, error) {
	var child *background
	taken := holder{app: a, home: h}
	for {
		if c, err := a.reach(ctx); !absent(err) {
			if err == nil && child != nil {
				a.Say("started a daemon (pid %d, log %s)", c.Info().GetPid(), logFile(h))
			}
			return c, err
		}
		if child == nil {
			var err error
			if child, err = a.launch(h); err != nil {
				return nil, unstarted(err)
			}
		}
		ended, status := child.ended()
		switch {
		case ended && status == exitTaken: // another one that does not answer yet, or is about to end
			child = nil
			if err := taken.wait(ctx); err != nil {
				return nil, err
			}
		case ended:
			return nil, errs.New(codeOf(status), "the daemon ended with status %d before it answered: %s", status, tail(logFile(h), child.from))
		}
		if err := pause(ctx, startPause); err != nil {
			return nil, err
		}
	}
}

// unstarted is the error of a daemon's program that could not be started; a
// full disk keeps its own code.
func unstarted(err error) error {
	if errs.DiskFull(err) {
		return errs.New(errs.InsufficientDisk, "start a daemon: %w", err)
	}
	return errs.New(errs.Unavailable, "start a daemon: %w", err)
}

// codeOf is the code that a daemon ended with: what it said in its log, this
// command says again with the same exit code. Any other end leaves nobody who
// answers.
func codeOf(status int) errs.Code {
	switch status {
	case errs.ExitBadArgument:
		return errs.InvalidArgument
	case errs.ExitUnsupported:
		return errs.Unsupported
	case errs.ExitNotAllowed:
		return errs.PermissionDenied
	case errs.ExitNoDisk:
		return errs.InsufficientDisk
	}
	return errs.Unavailable
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func logFile(h *home.Home) string { return filepath.Join(h.Logs(), "daemon.log") }

// background is a daemon that was started and is not waited for.
type background struct {
	pid  int
	from int64 // where its part of the log begins
}

// launch starts the daemon in a session of its own, so that it outlives the
// terminal, with an environment that does not depend on who happened to be
// first.
func (a *app) launch(h *home.Home) (*background, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := openLog(logFile(h))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	if err := inherit.Nothing(); err != nil { // a script's lock would be held as long as the daemon runs
		return nil, err
	}
	p, err := os.StartProcess(exe, []string{"brood", "daemon", "run", "--background", "--home", h.Dir()}, &os.ProcAttr{
		Dir:   "/",
		Env:   scrub(os.Environ(), h.Dir()),
		Files: []*os.File{null, log, log},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, err
	}
	b := &background{pid: p.Pid, from: from}
	return b, p.Release()
}

// ended reports whether the daemon is over, and its status.
func (b *background) ended() (bool, int) {
	var ws syscall.WaitStatus
	pid, err := syscall.Wait4(b.pid, &ws, syscall.WNOHANG, nil)
	if err != nil || pid != b.pid {
		return err != nil && !errors.Is(err, syscall.EINTR), errs.ExitFailure
	}
	if ws.Signaled() {
		return true, 128 + int(ws.Signal())
	}
	return true, ws.ExitStatus()
}

// scrub is the environment of a daemon: what it needs, and brood's settings.
func scrub(environ []string, dir string) []string {
	env := []string{"BROOD_HOME=" + dir}
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		switch {
		case name == "BROOD_HOME":
		case name == "PATH", name == "HOME", name == "LANG", strings.HasPrefix(name, "BROOD_"):
			env = append(env, e)
		}
	}
	return env
}

// openLog opens the daemon's log for appending; a large one is put aside.
func openLog(path string) (*os.File, error) {
	if st, err := os.Stat(path); err == nil && st.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// tail is the end of the log from an offset on, for a message.
func tail(path string, from int64) string {
	f, err := os.Open(path)
	if err != nil {
		return "there is no log: " + err.Error()
	}
	defer f.Close()
	const window = 4 << 10
	if st, err := f.Stat(); err == nil {
		if _, err := f.Seek(max(from, st.Size()-window), io.SeekStart); err != nil {
			return "see " + path
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, window))
	if err != nil || len(bytes.TrimSpace(b)) == 0 {
		return "see " + path
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "; ") + " (log: " + path + ")"
}
