//go:build linux

package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/inherit"

	"golang.org/x/sys/unix"
)

// StartParams say what to start and where.
type StartParams struct {
	// RuntimePath is the runtime program; it may be replaced or removed later,
	// what runs keeps running the old one.
	RuntimePath string
	// Dir is the run directory: made with mode 0700 when missing; one holder
	// per directory. Its path may have any length.
	Dir string
	// Log gets what holder and launcher have to say; nil drops it. It should
	// be opened for appending.
	Log *os.File
}

// startWait bounds StartHolder when its context does not.
const startWait = 30 * time.Second

// StartHolder starts the holder and the launcher in p.Dir and returns when the
// launcher answers. When one answers there already it returns at once,
// whatever its version: ask Info. The holder is no child of this process and
// survives it.
func StartHolder(ctx context.Context, p StartParams) error {
	if err := validatePath("run directory", p.Dir); err != nil {
		return err
	}
	if err := privateDir(p.Dir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	if answers(ctx, p.Dir) {
		return nil
	}
	if err := runStart(ctx, p); err != nil {
		return err
	}
	tick := time.NewTicker(answerPatience)
	defer tick.Stop()
	for !answers(ctx, p.Dir) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("launcher in %s does not answer: %w", p.Dir, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// runStart runs the program's start command, which puts the holder into its
// namespaces, waits until that is set up, and ends.
func runStart(ctx context.Context, p StartParams) error {
	log := p.Log
	if log == nil {
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer func() { _ = null.Close() }()
		log = null
	}
	if err := inherit.Nothing(); err != nil { // it outlives this process
		return err
	}
	var complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, p.RuntimePath, "start", "--dir", p.Dir)
	cmd.Env = Environ()
	cmd.Dir = "/"
	cmd.Stderr = &complaint
	cmd.ExtraFiles = []*os.File{log}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err := cmd.Run()
	if err == nil {
		return nil
	}
	text := strings.TrimSpace(complaint.String())
	var exit *exec.ExitError
	if !errors.As(err, &exit) || text == "" {
		return errs.New(errs.Internal, "start runtime %s: %w %s", p.RuntimePath, err, text)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("start runtime in %s: %w", p.Dir, ctx.Err())
	}
	code := errs.Internal
	switch exit.ExitCode() {
	case ExitRunning:
		// Another process was faster; its launcher will answer.
		return nil
	case ExitRefused:
		code = errs.Unsupported
	case ExitNoDisk:
		code = errs.InsufficientDisk
	}
	return errs.New(code, "start runtime in %s: %s", p.Dir, text)
}

// Exit codes of the start command.
const (
	ExitRunning = 3 // a holder runs in that directory already
	ExitRefused = 4 // the kernel refuses the namespaces; the text says what helps
	ExitNoDisk  = 5 // the disk is full
)

// Environ is the whole environment of holder and launcher: nothing of the
// caller's, whose secrets would otherwise live on in them.
func Environ() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
}

// answers reports whether a launcher in dir answers.
func answers(ctx context.Context, dir string) bool {
	ctx, cancel := context.WithTimeout(ctx, startWait/3)
	defer cancel()
	c, err := Dial(ctx, dir)
	if err != nil {
		// One of another version is there too, and its holder has the directory.
		return errs.Is(err, errs.Unsupported)
	}
	_ = c.Close()
	return true
}

// privateDir makes dir, or checks that it is this user's and nobody else's:
// whoever reaches the sockets in it owns the sandboxes.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return errs.New(errs.FailedPrecondition, "make run directory: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return errs.New(errs.FailedPrecondition, "look at run directory %s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return errs.New(errs.FailedPrecondition, "run directory %s is not a directory", dir)
	}
	if int(st.Uid) != os.Geteuid() {
		return errs.New(errs.PermissionDenied, "run directory %s belongs to uid %d, not to you (%d)", dir, st.Uid, os.Geteuid())
	}
	if st.Mode&0o077 != 0 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return errs.New(errs.PermissionDenied, "make run directory private: %w", err)
		}
	}
	return nil
}
