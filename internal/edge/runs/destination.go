package runs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"brood/internal/base/errs"
)

// destination is where a flag wants a file of a run. A regular file is replaced
// as a whole, so that nobody reads half of one; what is none (a device, a pipe,
// an open file under /dev/fd) is written to, for it cannot be replaced.
type destination struct {
	path string // where links lead
	how  int    // of opening it, to write to it; 0: it is replaced
}

// destinations checks the files that the flags name, before anything runs.
func (a *app) destinations(f runFlags) error {
	named := map[string]string{} // the flag of a path
	for _, file := range []struct{ flag, said string }{
		{"--graph", f.graph}, {"--summarize", f.summarize}, {"--trace", f.trace}, {"--junit", f.junit}, {"--report", f.report},
	} {
		if file.said == "" || file.flag == "--graph" && file.said == "-" || file.flag == "--summarize" && file.said == inHome {
			continue
		}
		if file.said == "-" {
			return errs.New(errs.InvalidArgument, "%s=- is not understood, for standard output shows the run: name a file, or /dev/stdout", file.flag)
		}
		d, err := newDestination(file.said)
		if err == nil && d.how != 0 && a.writes(file.said) == nil {
			err = opens(file.said)
		}
		if err != nil {
			return errs.New(errs.CodeOf(err), "%s=%s: %w", file.flag, file.said, err)
		}
		if before, twice := named[d.path]; twice && d.path != os.DevNull {
			return errs.New(errs.InvalidArgument, "%s and %s both name %s: give each a file of its own", before, file.flag, d.path)
		}
		named[d.path] = file.flag
	}
	return nil
}

// tellUnwritten says which files about a run there will not be, for there is no
// run.
func (a *app) tellUnwritten(f runFlags) {
	instead := "--graph"
	if f.graph == "" {
		if instead = "--dry"; f.dry == "" {
			return
		}
	}
	for _, file := range []struct{ flag, said string }{
		{"--summarize", f.summarize}, {"--trace", f.trace}, {"--junit", f.junit}, {"--report", f.report},
	} {
		if file.said != "" {
			a.warning(fmt.Sprintf("%s runs nothing, so %s writes nothing", instead, file.flag))
		}
	}
}

// newDestination finds out what a path leads to, and whether it can be written.
func newDestination(said string) (destination, error) {
	info, err := os.Stat(said)
	switch {
	case err == nil && info.IsDir():
		return destination{}, errs.New(errs.InvalidArgument, "it is a folder: name a file in it")
	case errors.Is(err, unix.ENOTDIR):
		return destination{}, errs.New(errs.InvalidArgument, "it is below something that is no folder")
	case errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(said, "/"):
		return destination{}, errs.New(errs.InvalidArgument, "it is the name of a folder: name a file in it")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return destination{}, errs.New(refused(err), "%w", err)
	}
	d, err := follow(said)
	if err != nil {
		return destination{}, errs.New(refused(err), "%w", err)
	}
	folder := filepath.Dir(d.path)
	switch {
	case d.how != 0:
		return d, nil
	case info != nil && !info.Mode().IsRegular():
		d.how = os.O_WRONLY | os.O_APPEND
		return d, nil
	case unix.Access(folder, unix.W_OK) == nil:
		return d, nil
	case info != nil: // there may be no new file, but the old one may be changed
		d.how = os.O_WRONLY | os.O_TRUNC
		return d, nil
	}
	return destination{}, errs.New(errs.PermissionDenied, "no file may be made in %s", folder)
}

// opens says whether what is no file of its own can be written to. A pipe is
// not opened: that waits for its reader.
func opens(said string) error {
	info, err := os.Stat(said)
	switch {
	case err != nil:
		return errs.New(refused(err), "%w", err)
	case info.Mode()&fs.ModeSocket != 0:
		return errs.New(errs.InvalidArgument, "it is a socket, which cannot be opened as a file")
	}
	if err := unix.Access(said, unix.W_OK); err != nil {
		return errs.New(refused(err), "it cannot be written: %w", err)
	}
	return nil
}

// refused is the code for a path that cannot be written to.
func refused(err error) errs.Code {
	if errors.Is(err, fs.ErrPermission) {
		return errs.PermissionDenied
	}
	return errs.InvalidArgument
}

// mostLinks is how many links lead to a file, as in Linux.
const mostLinks = 40

// follow goes along links, also to what is not there yet.
func follow(path string) (destination, error) {
	for range mostLinks {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if errors.Is(err, fs.ErrNotExist) {
			return destination{}, errs.New(errs.InvalidArgument, "there is no folder %s: make it first", filepath.Dir(path))
		}
		if err == nil {
			dir, err = filepath.Abs(dir)
		}
		if err != nil {
			return destination{}, err
		}
		path = filepath.Join(dir, filepath.Base(path))
		to, _ := os.Readlink(path) // "" where there is no link
		switch {
		case to == "":
			return destination{path: path}, nil
		case strings.HasPrefix(path, "/proc/"):
			// An open file of a process: who has it open looks for what is
			// written in it, not in a new one of that name.
			if real, err := filepath.EvalSymlinks(path); err == nil {
				path = real
			}
			return destination{path: path, how: os.O_WRONLY | os.O_APPEND}, nil
		case !filepath.IsAbs(to):
			to = filepath.Join(dir, to)
		}
		path = to
	}
	return destination{}, unix.ELOOP
}

// write writes a file of a run to where a flag says.
func (a *app) write(ctx context.Context, said string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	err := a.put(ctx, said, b.Bytes())
	if errors.Is(err, context.Canceled) {
		return err
	}
	if err != nil {
		return errs.New(errs.FailedPrecondition, "%s cannot be written: %w", said, err)
	}
	return nil
}

func (a *app) put(ctx context.Context, said string, text []byte) error {
	// Opened again, a file that we write to already would be written over from
	// its beginning, and a socket cannot be.
	if file := a.writes(said); file != nil {
		_, err := file.Write(text)
		return err
	}
	// A task may have removed the folder, say with its outputs.
	if err := os.MkdirAll(filepath.Dir(said), 0o755); err != nil {
		return err
	}
	d, err := newDestination(said)
	if err != nil {
		return err
	}
	if d.how == 0 {
		return renameio.WriteFile(d.path, text, 0o644)
	}
	file, err := open(ctx, said, d.how)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// askEvery is how often a pipe is tried that nobody reads yet.
const askEvery = 50 * time.Millisecond

// open opens what is there to be written to. For the reader of a pipe it waits
// until ctx ends, as opening it would for ever.
func open(ctx context.Context, said string, how int) (*os.File, error) {
	info, err := os.Stat(said)
	if err != nil {
		return nil, err
	}
	if info.Mode()&fs.ModeNamedPipe == 0 {
		return os.OpenFile(said, how, 0)
	}
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		file, err := os.OpenFile(said, how|unix.O_NONBLOCK, 0)
		if !errors.Is(err, unix.ENXIO) {
			return file, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// writes is the standard output or error if the path leads to what that is.
func (a *app) writes(said string) *os.File {
	there, err := os.Stat(said)
	if err != nil {
		return nil
	}
	for _, w := range []io.Writer{a.Out, a.Err} {
		if file, ok := w.(*os.File); ok {
			if info, err := file.Stat(); err == nil && os.SameFile(info, there) {
				return file
			}
		}
	}
	return nil
}
