package guest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/sandbox/guest/pack"
	"brood/internal/sandbox/guest/proto"
)

// Stat asks about a path in the sandbox; one that does not exist is no error.
func (c *Client) Stat(ctx context.Context, a StatArgs) (StatResult, error) {
	return invoke[StatResult](ctx, c, proto.OpStat, a)
}

// Put unpacks a tar stream below a folder of the sandbox.
func (c *Client) Put(ctx context.Context, a PutArgs, tar io.Reader) (CopyResult, error) {
	s, err := c.open(ctx, proto.OpPut, a)
	if err != nil {
		return CopyResult{}, err
	}
	defer s.end()
	var r CopyResult
	var failed error
	g := life.NewGroup(ctx)
	g.Go("reply", func(context.Context) error {
		// A reply before the end is a refusal: closing stops the sender.
		r, failed = result[CopyResult](s)
		return s.Close()
	})
	sent := sendChunks(s, tar, c.hello.Version >= zerosVersion)
	if err := g.Wait(); err != nil {
		return r, lost(ctx, err)
	}
	if failed != nil && ctx.Err() == nil && sent.source != nil {
		failed = sent.source // what the guest says about it is only an echo
	}
	return r, failed
}

// sending is how a transfer went: source is the reader's failure.
type sending struct{ source error }

// zerosVersion is the first whose guests read streams that leave out zeros.
const zerosVersion = 2

func sendChunks(s *stream, from io.Reader, zeros bool) sending {
	w := proto.NewChunkWriter(s)
	w.Zeros = zeros
	r := &remembering{r: from}
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, r, make([]byte, proto.MaxChunk))
	// A failed write is explained by the reply, or by its absence.
	switch {
	case r.err != nil:
		_ = w.Abort(r.err)
	case err == nil:
		_ = w.Close()
	}
	return sending{source: r.err}
}

// remembering keeps the error that a reader failed with.
type remembering struct {
	r   io.Reader
	err error
}

func (r *remembering) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// Get writes a path of the sandbox to w as a tar stream.
func (c *Client) Get(ctx context.Context, a GetArgs, w io.Writer) (CopyResult, error) {
	a.Zeros = c.hello.Version >= zerosVersion
	s, err := c.open(ctx, proto.OpGet, a)
	if err != nil {
		return CopyResult{}, err
	}
	defer s.end()
	if _, err := result[struct{}](s); err != nil {
		return CopyResult{}, err
	}
	if _, err := io.CopyBuffer(w, struct{ io.Reader }{proto.NewChunkReader(s)}, make([]byte, proto.MaxChunk)); err != nil {
		return CopyResult{}, lostOr(ctx, err)
	}
	var r CopyResult
	if err := proto.ReadMessage(s, &r); err != nil {
		return r, lost(ctx, err)
	}
	return r, nil
}

// lostOr keeps an error that has a code or comes from the caller's writer.
func lostOr(ctx context.Context, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || ctx.Err() != nil {
		return lost(ctx, err)
	}
	return err
}

// CopyIn copies a file or folder of this machine into the sandbox, to where
// cp -r would: into to when that is a folder, else under its name. "from/."
// means a folder's content.
func (c *Client) CopyIn(ctx context.Context, from, to string) (CopyResult, error) {
	info, err := os.Stat(from)
	if err != nil {
		return CopyResult{}, errs.New(errs.NotFound, "%w", err)
	}
	st, err := c.Stat(ctx, StatArgs{Path: to})
	if err != nil {
		return CopyResult{}, err
	}
	base, err := baseName(from)
	if err != nil {
		return CopyResult{}, err
	}
	p, err := place(placing{
		folder: info.IsDir(), content: isContent(from), base: base, to: to,
		exists: st.Exists, toFolder: fs.FileMode(st.Mode).IsDir(),
	})
	if err != nil {
		return CopyResult{}, err
	}
	return piped(ctx, func(ctx context.Context, w io.Writer) (CopyResult, error) {
		stats, err := pack.Pack(w, from, p.name)
		return counted(stats), err
	}, func(ctx context.Context, r io.Reader) (CopyResult, error) {
		return c.Put(ctx, PutArgs{Dir: p.dir}, r)
	})
}

// CopyOut copies a file or folder of the sandbox to this machine, like CopyIn.
// Nothing is written but below the target.
func (c *Client) CopyOut(ctx context.Context, from, to string) (CopyResult, error) {
	st, err := c.Stat(ctx, StatArgs{Path: from})
	if err != nil {
		return CopyResult{}, err
	}
	if !st.Exists {
		return CopyResult{}, errs.New(errs.NotFound, "%s does not exist in the sandbox", from)
	}
	base := path.Base(path.Clean(from))
	if base == "/" || base == ".." {
		return CopyResult{}, errs.New(errs.InvalidArgument, "%s has no name of its own: name a file or folder, or %s for its content", from, path.Join(from, ".")+"/.")
	}
	info, err := os.Stat(to)
	exists := err == nil
	p, err := place(placing{
		folder: fs.FileMode(st.Mode).IsDir(), content: isContent(from), base: base, to: to,
		exists: exists, toFolder: exists && info.IsDir(),
	})
	if err != nil {
		return CopyResult{}, err
	}
	root, err := os.OpenRoot(p.dir)
	if err != nil {
		return CopyResult{}, errs.New(errs.NotFound, "target folder: %w", err)
	}
	defer root.Close()
	return piped(ctx, func(ctx context.Context, w io.Writer) (CopyResult, error) {
		return c.Get(ctx, GetArgs{Path: from, Name: p.name}, w)
	}, func(ctx context.Context, r io.Reader) (CopyResult, error) {
		stats, err := pack.Unpack(r, root, pack.Options{})
		if err == nil {
			_, err = io.Copy(io.Discard, r) // the source's verdict comes last
		}
		return counted(stats), err
	})
}

func counted(s pack.Stats) CopyResult {
	return CopyResult{Entries: s.Entries, Bytes: s.Bytes, Skipped: s.Skipped, Names: s.Names}
}

// baseName is the name of a path of this machine, also of "." and "..".
func baseName(p string) (string, error) {
	abs, err := filepath.Abs(p)
	if err != nil {
		return "", err
	}
	return filepath.Base(abs), nil
}

func isContent(p string) bool { return p == "." || strings.HasSuffix(p, "/.") }

// placing is what is known about a copy; placed is where it goes.
type placing struct {
	folder, content  bool // the source is one; its content is meant
	base, to         string
	exists, toFolder bool // the target does; is one
}
type placed struct{ dir, name string }

// place decides like cp -r.
func place(p placing) (placed, error) {
	switch {
	case p.exists && p.toFolder && p.content:
		return placed{p.to, "."}, nil
	case p.exists && p.toFolder:
		if p.base == "/" {
			return placed{}, errs.New(errs.InvalidArgument, "the root folder has no name: copy /. for its content")
		}
		return placed{p.to, p.base}, nil
	case p.exists && p.folder:
		return placed{}, errs.New(errs.FailedPrecondition, "%s is a file; a folder cannot be copied over it", p.to)
	case !p.exists && !p.folder && strings.HasSuffix(p.to, "/"):
		return placed{}, errs.New(errs.NotFound, "folder %s does not exist", p.to)
	}
	clean := path.Clean(p.to)
	return placed{path.Dir(clean), path.Base(clean)}, nil
}

// piped runs a source into a sink. The sink's failure is told unless the
// source failed first; skipped entries are known to the source only.
func piped(ctx context.Context, source func(context.Context, io.Writer) (CopyResult, error), sink func(context.Context, io.Reader) (CopyResult, error)) (CopyResult, error) {
	r, w := io.Pipe()
	var packed CopyResult
	g := life.NewGroup(ctx)
	g.Go("source", func(ctx context.Context) error {
		var err error
		packed, err = source(ctx, w)
		return errors.Join(w.CloseWithError(err), ctx.Err())
	})
	result, err := sink(ctx, r)
	_ = r.CloseWithError(io.ErrClosedPipe) // never fails; the source stops
	if e := g.Wait(); err == nil {
		err = e
	}
	result.Skipped += packed.Skipped
	result.Names = append(result.Names, packed.Names...)
	return result, err
}
