package client

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	broodv1 "brood/api/brood/v1"
	"brood/internal/base/content"
	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/wire"
)

// StatFile describes a path inside a sandbox; follow follows path itself when
// it is a symlink.
func (c *Client) StatFile(ctx context.Context, sandbox, path string, follow bool) (*broodv1.FileInfo, error) {
	r, err := unary(ctx, c.files.StatFile, &broodv1.StatFileRequest{Sandbox: sandbox, Path: path, Follow: follow})
	return r.GetInfo(), err
}

// Copied says what a copy did.
type Copied struct {
	Entries uint64 // files, folders and symlinks
	Bytes   uint64 // of their content
	// Skipped are the first devices, pipes and sockets, and files that went
	// meanwhile, that were left out;
	// SkippedTotal is how many there were.
	Skipped      []string
	SkippedTotal uint64
}

// maxSkipped bounds Copied.Skipped.
const maxSkipped = 20

func (c *Copied) skip(name string) {
	c.SkippedTotal++
	if len(c.Skipped) < maxSkipped {
		c.Skipped = append(c.Skipped, name)
	}
}

// CopyTo copies a file, folder or symlink into a sandbox, with modes (setuid
// and setgid too) and times, as cp -a does: into remote when that is a folder,
// else as remote. A local path that ends in "/." means what the folder holds.
// Devices, pipes and sockets in a folder are left out.
func (c *Client) CopyTo(ctx context.Context, sandbox, local, remote string) (Copied, error) {
	st, err := os.Lstat(local)
	if err != nil {
		return Copied{}, failed(errs.New(errs.NotFound, "%w", err))
	}
	if !path.IsAbs(remote) {
		return Copied{}, failed(errs.New(errs.InvalidArgument, "%s:%.200s is not absolute: begin the path inside with /", sandbox, remote))
	}
	dir, name := path.Clean(remote), filepath.Base(filepath.Clean(local))
	into, err := c.StatFile(ctx, sandbox, dir, true)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return Copied{}, err
	}
	contents := strings.HasSuffix(filepath.ToSlash(local), "/.")
	switch {
	case into.GetType() == broodv1.FileType_FILE_TYPE_DIRECTORY && contents:
		name = "."
	case into.GetType() == broodv1.FileType_FILE_TYPE_DIRECTORY:
	case contents || strings.HasSuffix(remote, "/"):
		if into == nil { // is it the folder that there is not, or the sandbox?
			if _, err := c.GetSandbox(ctx, sandbox); errs.Is(err, errs.NotFound) {
				return Copied{}, err
			}
		}
		return Copied{}, failed(errs.New(errs.NotFound, "%s:%.200s is no folder: make it first", sandbox, remote))
	case into != nil && st.IsDir():
		return Copied{}, failed(errs.New(errs.InvalidArgument, "%.200s is a folder and %s:%.200s is not", local, sandbox, remote))
	default:
		dir, name = path.Dir(dir), path.Base(dir)
	}
	if kind := content.Kind(st.Mode()); kind != "" {
		return Copied{}, failed(errs.New(errs.Unsupported, "%.200s is a %s, which has no content to copy: name a file, folder or symlink", local, kind))
	}
	var copied Copied
	r, w := io.Pipe()
	g := life.NewGroup(ctx)
	g.Go("read "+local, func(context.Context) error {
		err := writeTar(w, local, name, copied.skip)
		_ = w.CloseWithError(err) // never fails
		return err
	})
	done, err := c.PutTar(ctx, sandbox, dir, r)
	_ = r.CloseWithError(context.Canceled) // unblocks the reader of local; never fails
	if readErr := g.Wait(); readErr != nil {
		return Copied{}, failed(readErr)
	}
	copied.Entries, copied.Bytes = done.GetEntries(), done.GetBytes()
	return copied, err
}

// CopyFrom copies a file, folder or symlink out of a sandbox, with modes (less
// setuid and setgid) and times: into local when that is a folder, else as
// local. Nothing is written anywhere else, whatever the sandbox sends. A
// remote path that ends in "/." means what the folder holds. Devices, pipes
// and sockets in a folder are left out.
func (c *Client) CopyFrom(ctx context.Context, sandbox, remote, local string) (Copied, error) {
	contents := strings.HasSuffix(remote, "/.")
	st, err := os.Stat(local)
	into := err == nil && st.IsDir()
	if !into && (contents || strings.HasSuffix(filepath.ToSlash(local), "/")) {
		return Copied{}, failed(errs.New(errs.NotFound, "%.200s is no folder: make it first", local))
	}
	dir, name := local, ""
	if !into {
		dir, name = filepath.Dir(filepath.Clean(local)), filepath.Base(filepath.Clean(local))
	}
	if contents {
		name = "."
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Copied{}, failed(errs.New(errs.NotFound, "there is no folder %.200s: make it first", dir))
	}
	if err != nil {
		return Copied{}, failed(errs.New(errs.NotFound, "%w", err))
	}
	tr := c.getTar(ctx, sandbox, path.Clean(remote), false)
	defer func() { _ = tr.Close() }() // never fails
	copied, err := readTar(tr, root, name)
	if err == nil {
		// What is after the tar stream's end says that it is whole.
		_, err = io.Copy(io.Discard, tr)
	}
	copied.Skipped, copied.SkippedTotal = tr.skipped, tr.skippedTotal
	return copied, failed(errors.Join(err, root.Close()))
}

// PutTar unpacks a tar stream into a folder of a sandbox. The names in it are
// relative to dir, which must exist; nothing is written outside of it.
func (c *Client) PutTar(ctx context.Context, sandbox, dir string, r io.Reader) (*broodv1.EndPutResponse, error) {
	begun, err := unary(ctx, c.files.BeginPut, &broodv1.BeginPutRequest{Sandbox: sandbox, Path: dir})
	if err != nil {
		return nil, err
	}
	id := begun.GetPutId()
	if err := c.sendPut(ctx, id, r); err != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), life.UndoLimit)
		defer cancel()
		_, abortErr := c.files.EndPut(cleanup, connect.NewRequest(&broodv1.EndPutRequest{PutId: id, Abort: true}))
		if lost(abortErr) || errs.Is(failed(abortErr), errs.NotFound) {
			abortErr = nil // the daemon drops it by itself
		}
		return nil, failed(errors.Join(err, abortErr))
	}
	return unary(ctx, c.files.EndPut, &broodv1.EndPutRequest{PutId: id})
}

// putAlive is how often a copy says that it goes on, whatever r waits for.
const putAlive = 5 * time.Second

func (c *Client) sendPut(ctx context.Context, id string, r io.Reader) (err error) {
	var offset atomic.Uint64
	g := life.NewGroup(ctx)
	g.Go("keep", func(ctx context.Context) error {
		tick := time.NewTicker(putAlive)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				// That it fails is seen by whoever sends the next piece.
				_, _ = c.files.WritePut(ctx, connect.NewRequest(&broodv1.WritePutRequest{PutId: id, Offset: offset.Load()}))
			}
		}
	})
	defer func() { err = errors.Join(err, g.Stop()) }()
	return c.sendPieces(ctx, id, r, &offset)
}

// sendPieces sends r; taken is how much of it the daemon has.
func (c *Client) sendPieces(ctx context.Context, id string, r io.Reader, taken *atomic.Uint64) error {
	buf := make([]byte, wire.MaxChunkBytes)
	for {
		n, readErr := io.ReadFull(r, buf)
		for data := buf[:n]; len(data) > 0; {
			w, err := unary(ctx, c.files.WritePut, &broodv1.WritePutRequest{PutId: id, Offset: taken.Load(), Data: data})
			if err != nil {
				return err
			}
			took := min(w.GetNextOffset()-taken.Load(), uint64(len(data)))
			if took == 0 {
				return errs.New(errs.Internal, "the daemon took none of %d bytes", len(data))
			}
			data = data[took:]
			taken.Add(took)
		}
		switch {
		case errors.Is(readErr, io.EOF), errors.Is(readErr, io.ErrUnexpectedEOF):
			return nil
		case readErr != nil:
			return readErr
		}
	}
}

// GetTar reads a path of a sandbox as a tar stream; its first entry is the
// path under its last name. Close it.
func (c *Client) GetTar(ctx context.Context, sandbox, path string, follow bool) io.ReadCloser {
	return c.getTar(ctx, sandbox, path, follow)
}

func (c *Client) getTar(ctx context.Context, sandbox, path string, follow bool) *tarStream {
	ctx, cancel := context.WithCancel(ctx)
	s, err := c.files.GetFiles(ctx, connect.NewRequest(&broodv1.GetFilesRequest{Sandbox: sandbox, Path: path, Follow: follow}))
	return &tarStream{stream: s, err: err, cancel: cancel, failed: func(err error) error { return ended(ctx, err) }}
}

// tarStream joins the pieces of GetFiles.
type tarStream struct {
	stream *connect.ServerStreamForClient[broodv1.GetFilesResponse]
	rest   []byte
	err    error
	cancel context.CancelFunc
	failed func(error) error

	skipped      []string
	skippedTotal uint64
}

func (t *tarStream) Read(p []byte) (int, error) {
	for len(t.rest) == 0 {
		if t.err != nil {
			return 0, t.failed(t.err)
		}
		if !t.stream.Receive() {
			if t.err = t.stream.Err(); t.err == nil {
				return 0, io.EOF
			}
			continue
		}
		m := t.stream.Msg()
		t.rest = m.GetData()
		t.skipped, t.skippedTotal = append(t.skipped, m.GetSkipped()...), t.skippedTotal+m.GetSkippedTotal()
	}
	n := copy(p, t.rest)
	t.rest = t.rest[n:]
	return n, nil
}

func (t *tarStream) Close() error {
	t.cancel()
	if t.stream != nil {
		_ = t.stream.Close() // it was cancelled: that is all it can say
	}
	return nil
}
