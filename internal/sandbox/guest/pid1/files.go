//go:build linux

package pid1

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/pack"
	"brood/internal/sandbox/guest/proto"
)

// inside makes a path in the sandbox one of this process.
func (s *Server) inside(p string) (string, error) {
	if !path.IsAbs(p) {
		return "", errs.New(errs.InvalidArgument, "path %.200q in the sandbox must begin with /", p)
	}
	return filepath.Join(s.cfg.Root, p), nil
}

func (s *Server) stat(a proto.StatArgs) (proto.StatResult, error) {
	at, err := s.inside(a.Path)
	if err != nil {
		return proto.StatResult{}, err
	}
	look := os.Stat
	if a.NoFollow {
		look = os.Lstat
	}
	info, err := look(at)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return proto.StatResult{}, nil
	}
	if errors.Is(err, syscall.ENAMETOOLONG) {
		return proto.StatResult{}, tooLong(a.Path)
	}
	if err != nil {
		return proto.StatResult{}, errs.New(errs.FailedPrecondition, "%w", err)
	}
	r := proto.StatResult{Exists: true, Mode: uint32(info.Mode()), Size: info.Size(), ModTime: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		r.UID, r.GID = int(st.Uid), int(st.Gid)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		if r.Link, err = os.Readlink(at); err != nil {
			return proto.StatResult{}, errs.New(errs.FailedPrecondition, "%w", err)
		}
	}
	return r, nil
}

func tooLong(path string) error {
	return errs.New(errs.InvalidArgument, "%.200q in the sandbox: %w", path, syscall.ENAMETOOLONG)
}

// gatedReader and gatedWriter hold a copy still while processes are frozen,
// so that a capture sees the disk at one instant.
type gatedReader struct {
	ctx  context.Context
	gate *gate
	r    io.Reader
}

func (g gatedReader) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	if e := g.gate.pass(g.ctx); e != nil {
		return 0, e
	}
	return n, err
}

type gatedWriter struct {
	ctx  context.Context
	gate *gate
	w    io.Writer
}

func (g gatedWriter) Write(p []byte) (int, error) {
	if err := g.gate.pass(g.ctx); err != nil {
		return 0, err
	}
	return g.w.Write(p)
}

// servePut unpacks what follows the header. The reply comes at the end, or
// before it when something fails: the host then stops sending.
func (s *Server) servePut(ctx context.Context, c *call) {
	a, err := args[proto.PutArgs](c)
	var stats pack.Stats
	if err == nil {
		chunks := proto.NewChunkReader(gatedReader{ctx, s.gate, c.st})
		stats, err = s.put(a, chunks)
	}
	_ = reply(c.st, copied(stats), err) // when that fails the host is gone
}

func (s *Server) put(a proto.PutArgs, r io.Reader) (pack.Stats, error) {
	dir, err := s.inside(a.Dir)
	if err != nil {
		return pack.Stats{}, err
	}
	who, err := s.account(a.User)
	if err != nil {
		return pack.Stats{}, err
	}
	if a.MakeDir {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return pack.Stats{}, errs.New(errs.FailedPrecondition, "%w", err)
		}
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return pack.Stats{}, errs.New(errs.NotFound, "there is no folder %.200s in the sandbox: make it first", a.Dir)
	}
	if err != nil {
		return pack.Stats{}, errs.New(errs.FailedPrecondition, "target folder: %w", err)
	}
	defer root.Close()
	opt := pack.Options{SpecialBits: true, KeepOwner: a.KeepOwner}
	if who.cred != nil {
		opt.Owner = &pack.Owner{UID: int(who.cred.Uid), GID: int(who.cred.Gid)}
	}
	stats, err := pack.Unpack(r, root, opt)
	if err == nil {
		// A tar stream's end may be padded; the chunks' end says it is whole.
		_, err = io.Copy(io.Discard, r)
	}
	return stats, err
}

// serveGet replies and then sends the tar stream in chunks, closed by its
// counts as one more message.
func (s *Server) serveGet(ctx context.Context, c *call) {
	a, err := args[proto.GetArgs](c)
	var at string
	if err == nil {
		at, err = s.inside(a.Path)
	}
	if err == nil {
		if _, e := os.Lstat(at); errors.Is(e, syscall.ENAMETOOLONG) {
			err = tooLong(a.Path)
		} else if e != nil {
			err = errs.New(errs.NotFound, "%.200s in the sandbox: %w", a.Path, errors.Unwrap(e))
		}
	}
	if e := reply(c.st, none{}, err); e != nil || err != nil {
		return
	}
	w := proto.NewChunkWriter(gatedWriter{ctx, s.gate, c.st})
	w.Zeros = a.Zeros
	packed := pack.Pack
	if a.NoFollow {
		packed = pack.Link
	}
	stats, err := packed(w, at, a.Name)
	if err != nil {
		_ = w.Abort(err) // when that fails the host is gone
		return
	}
	if w.Close() == nil {
		_ = proto.WriteMessage(c.st, copied(stats))
	}
}

func copied(s pack.Stats) proto.CopyResult {
	return proto.CopyResult{Entries: s.Entries, Bytes: s.Bytes, Skipped: s.Skipped, Names: s.Names}
}
