package server

import (
	"bufio"
	"context"
	"errors"
	"io"

	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"brood/internal/base/errs"
	"brood/internal/fabric/blob"
)

// piece is how much of a blob goes in one message.
const piece = 256 << 10

// Read streams a blob.
func (s *service) Read(r *bytestream.ReadRequest, stream bytestream.ByteStream_ReadServer) error {
	n, err := blob.ParseRead(r.GetResourceName())
	if err != nil {
		return wire(err)
	}
	switch {
	case r.GetReadLimit() < 0, n.Zstd && r.GetReadLimit() != 0:
		return status.Errorf(codes.InvalidArgument, "a read limit of %d is not possible here", r.GetReadLimit())
	case !s.store.Has(n.Blob):
		return status.Errorf(codes.NotFound, "blob %s is not in the cache", n.Blob)
	case r.GetReadOffset() < 0 || r.GetReadOffset() > n.Blob.Size:
		return status.Errorf(codes.OutOfRange, "the offset %d lies outside the %d bytes of %s", r.GetReadOffset(), n.Blob.Size, n.Blob)
	}
	f, err := s.store.Open(n.Blob, r.GetReadOffset())
	if err != nil {
		return wire(err)
	}
	defer f.Close()
	var from io.Reader = f
	if l := r.GetReadLimit(); l > 0 {
		from = io.LimitReader(f, l)
	}
	to := &sender{stream: stream}
	if !n.Zstd {
		return wire(pour(to, from))
	}
	// The encoder writes block by block, each far smaller than a message.
	whole := bufio.NewWriterSize(to, piece)
	e, err := blob.NewPacker()
	if err != nil {
		return wire(err)
	}
	e.Reset(whole)
	if err := pour(e, from); err != nil {
		return wire(err)
	}
	if err := e.Close(); err != nil {
		return wire(err)
	}
	return wire(whole.Flush())
}

// pour copies in pieces of one size, whatever the two sides would like.
func pour(w io.Writer, r io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, piece))
	return err
}

// sender sends what is written to it.
type sender struct {
	stream bytestream.ByteStream_ReadServer
}

func (s *sender) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		k := min(len(p), piece)
		if err := s.stream.Send(&bytestream.ReadResponse{Data: p[:k]}); err != nil {
			return 0, err
		}
		p = p[k:]
	}
	return n, nil
}

// Write stores a blob that comes as a stream.
func (s *service) Write(stream bytestream.ByteStream_WriteServer) error {
	if err := s.writable(); err != nil {
		return wire(err)
	}
	first, err := stream.Recv()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return status.Error(codes.InvalidArgument, "the upload has no message")
		}
		return err
	}
	n, err := blob.ParseWrite(first.GetResourceName())
	if err != nil {
		return wire(err)
	}
	if first.GetWriteOffset() != 0 {
		return status.Errorf(codes.InvalidArgument, "the upload begins at offset %d: uploads here begin at 0", first.GetWriteOffset())
	}
	if s.store.Has(n.Blob) {
		// Someone else was sooner: the protocol wants the answer at once.
		return stream.SendAndClose(&bytestream.WriteResponse{CommittedSize: there(n)})
	}
	in := &upload{stream: stream, name: first.GetResourceName(), message: first}
	if err := s.take(n, in); err != nil {
		return wire(err)
	}
	return stream.SendAndClose(&bytestream.WriteResponse{CommittedSize: in.received})
}

// there is the committed size of a blob that was here already.
func there(n blob.Name) int64 {
	if n.Zstd {
		return -1
	}
	return n.Blob.Size
}

// take stores what an upload holds and sees to it that it is whole.
func (s *service) take(n blob.Name, in *upload) error {
	var from io.Reader = in
	if n.Zstd {
		d, err := blob.NewUnpacker()
		if err != nil {
			return err
		}
		defer d.Close()
		if err := d.Reset(in); err != nil {
			return in.blame(err)
		}
		from = &unpacking{d: d, in: in}
	}
	return s.store.Put(n.Blob, from)
}

// upload reads the bytes of a stream's messages. It ends with the message that
// says so, or where the client closes the stream without one, as bazel-remote
// does: whether the blob is whole its digest tells.
type upload struct {
	stream   bytestream.ByteStream_WriteServer
	name     string
	message  *bytestream.WriteRequest // not read yet; nil is none
	buf      []byte
	received int64
	finished bool
	err      error
}

func (u *upload) Read(p []byte) (int, error) {
	for len(u.buf) == 0 && u.err == nil {
		if u.finished {
			u.err = io.EOF
			break
		}
		u.err = u.next()
	}
	if len(u.buf) == 0 {
		return 0, u.err
	}
	n := copy(p, u.buf)
	u.buf = u.buf[n:]
	return n, nil
}

func (u *upload) next() error {
	m := u.message
	u.message = nil
	if m == nil {
		var err error
		if m, err = u.stream.Recv(); err != nil {
			return err
		}
	}
	switch {
	case m.GetResourceName() != "" && m.GetResourceName() != u.name:
		return errs.New(errs.InvalidArgument, "the resource name changed during the upload")
	case m.GetWriteOffset() != u.received:
		return errs.New(errs.InvalidArgument, "a message has the offset %d, and %d bytes came before it", m.GetWriteOffset(), u.received)
	}
	u.buf = m.GetData()
	u.received += int64(len(u.buf))
	u.finished = m.GetFinishWrite()
	return nil
}

// blame returns the stream's own error, where it has one, instead of what a
// decompressor makes of it.
func (u *upload) blame(err error) error {
	if u.err != nil && !errors.Is(u.err, io.EOF) {
		return u.err
	}
	return errs.New(errs.InvalidArgument, "the upload is not zstd: %w", err)
}

type unpacking struct {
	d  io.Reader
	in *upload
}

func (u *unpacking) Read(p []byte) (int, error) {
	n, err := u.d.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = u.in.blame(err)
	}
	return n, err
}

// QueryWriteStatus: uploads cannot be resumed, so one that is not done has
// nothing yet.
func (s *service) QueryWriteStatus(_ context.Context, r *bytestream.QueryWriteStatusRequest) (*bytestream.QueryWriteStatusResponse, error) {
	n, err := blob.ParseWrite(r.GetResourceName())
	if err != nil {
		return nil, wire(err)
	}
	if s.store.Has(n.Blob) {
		return &bytestream.QueryWriteStatusResponse{CommittedSize: n.Blob.Size, Complete: true}, nil
	}
	return &bytestream.QueryWriteStatusResponse{}, nil
}
