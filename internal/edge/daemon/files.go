package daemon

import (
	"context"
	"io"
	"io/fs"
	"path"
	"time"

	"connectrpc.com/connect"

	broodv1 "brood/api/brood/v1"
	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/proto"
	"brood/internal/wire"
)

type fileService struct{ d *Daemon }

// BeginPut opens a copy into a sandbox.
func (s *fileService) BeginPut(_ context.Context, req *connect.Request[broodv1.BeginPutRequest]) (*connect.Response[broodv1.BeginPutResponse], error) {
	p := req.Msg.GetPath()
	if err := inside(p); err != nil {
		return nil, err
	}
	g, err := s.d.guest(req.Msg.GetSandbox())
	if err != nil {
		return nil, err
	}
	a := proto.PutArgs{Dir: p, KeepOwner: req.Msg.GetKeepOwner()}
	putID, err := s.d.puts.begin(s.d.streams, func(ctx context.Context, r io.Reader) (proto.CopyResult, error) {
		ctx, cancel := s.d.using(ctx, req.Msg.GetSandbox())
		defer cancel()
		return g.Put(ctx, a, r)
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&broodv1.BeginPutResponse{PutId: putID}), nil
}

// WritePut sends the next piece.
func (s *fileService) WritePut(ctx context.Context, req *connect.Request[broodv1.WritePutRequest]) (*connect.Response[broodv1.WritePutResponse], error) {
	if n := len(req.Msg.GetData()); n > wire.MaxChunkBytes {
		return nil, errs.New(errs.InvalidArgument, "%d bytes in one piece: at most %d", n, wire.MaxChunkBytes)
	}
	next, err := s.d.puts.write(ctx, req.Msg.GetPutId(), req.Msg.GetOffset(), req.Msg.GetData())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&broodv1.WritePutResponse{NextOffset: next}), nil
}

// EndPut closes a copy, and answers when everything is in place.
func (s *fileService) EndPut(ctx context.Context, req *connect.Request[broodv1.EndPutRequest]) (*connect.Response[broodv1.EndPutResponse], error) {
	r, err := s.d.puts.end(ctx, req.Msg.GetPutId(), req.Msg.GetAbort())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&broodv1.EndPutResponse{
		Entries: uint64(r.Entries), Bytes: uint64(r.Bytes), Skipped: r.Names, SkippedTotal: uint64(r.Skipped),
	}), nil
}

// GetFiles streams a path of a sandbox as tar.
func (s *fileService) GetFiles(ctx context.Context, req *connect.Request[broodv1.GetFilesRequest], stream *connect.ServerStream[broodv1.GetFilesResponse]) error {
	p := req.Msg.GetPath()
	if err := inside(p); err != nil {
		return err
	}
	g, err := s.d.guest(req.Msg.GetSandbox())
	if err != nil {
		return err
	}
	name := path.Base(path.Clean(p))
	if name == "/" {
		name = "."
	}
	ctx, cancel := s.d.using(ctx, req.Msg.GetSandbox())
	defer cancel()
	r, err := g.Get(ctx, proto.GetArgs{Path: p, Name: name, NoFollow: !req.Msg.GetFollow()}, pieces{stream})
	if err != nil || r.Skipped == 0 {
		return err
	}
	return stream.Send(&broodv1.GetFilesResponse{Skipped: r.Names, SkippedTotal: uint64(r.Skipped)})
}

// pieces sends what is written to it as pieces.
type pieces struct {
	stream *connect.ServerStream[broodv1.GetFilesResponse]
}

// Write sends p.
func (p pieces) Write(b []byte) (int, error) {
	for sent := 0; sent < len(b); {
		n := min(len(b)-sent, wire.MaxChunkBytes)
		if err := p.stream.Send(&broodv1.GetFilesResponse{Data: b[sent : sent+n]}); err != nil {
			return sent, err
		}
		sent += n
	}
	return len(b), nil
}

// StatFile describes a path.
func (s *fileService) StatFile(ctx context.Context, req *connect.Request[broodv1.StatFileRequest]) (*connect.Response[broodv1.StatFileResponse], error) {
	p := req.Msg.GetPath()
	if err := inside(p); err != nil {
		return nil, err
	}
	g, err := s.d.guest(req.Msg.GetSandbox())
	if err != nil {
		return nil, err
	}
	st, err := g.Stat(ctx, proto.StatArgs{Path: p, NoFollow: !req.Msg.GetFollow()})
	if err != nil {
		return nil, err
	}
	if !st.Exists {
		return nil, errs.New(errs.NotFound, "%.200s does not exist in sandbox %s", p, req.Msg.GetSandbox())
	}
	mode := fs.FileMode(st.Mode)
	return connect.NewResponse(&broodv1.StatFileResponse{Info: &broodv1.FileInfo{
		Path: p, Type: fileType(mode), Size: uint64(st.Size), Mode: uint32(mode.Perm()) | sticky(mode), Uid: uint32(st.UID), Gid: uint32(st.GID),
		ModifiedAt: stamp(time.Unix(0, st.ModTime)), LinkTarget: st.Link,
	}}), nil
}

func fileType(m fs.FileMode) broodv1.FileType {
	switch {
	case m.IsRegular():
		return broodv1.FileType_FILE_TYPE_REGULAR
	case m.IsDir():
		return broodv1.FileType_FILE_TYPE_DIRECTORY
	case m&fs.ModeSymlink != 0:
		return broodv1.FileType_FILE_TYPE_SYMLINK
	}
	return broodv1.FileType_FILE_TYPE_OTHER
}

// sticky returns the bits of chmod(2) above the permissions.
func sticky(m fs.FileMode) (bits uint32) {
	for flag, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&flag != 0 {
			bits |= bit
		}
	}
	return bits
}

// maxPath bounds a path in bytes: PATH_MAX without the zero at its end.
const maxPath = 4095

// inside checks a path in a sandbox.
func inside(p string) error {
	if !path.IsAbs(p) {
		return errs.New(errs.InvalidArgument, "path %.200q in the sandbox must begin with /", p)
	}
	if len(p) > maxPath {
		return errs.New(errs.InvalidArgument, "path %.200q in the sandbox is too long: it has %d bytes, and at most %d are taken", p, len(p), maxPath)
	}
	return nil
}
