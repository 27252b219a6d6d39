package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	rexec "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
)

// fetched is how many bytes are asked for in one message: it comes as a whole, and
// a server that sends none is waited for as long as it may take.
const fetched = 1 << 20

// spare is what a stream may have beyond the bytes of its blob.
const spare = 1 << 20

// Sink takes a blob. r ends with an error of code DataLoss instead of io.EOF
// when the bytes are not the blob's: place it after io.EOF only. It is called
// for several blobs at once, and once for each.
type Sink func(ctx context.Context, d Digest, r io.Reader) error

// Download fetches blobs, some at once. NotFound when the server has one of
// them not.
func (c *Client) Download(ctx context.Context, list []Digest, to Sink) error {
	l, err := c.Limits(ctx)
	if err != nil {
		return err
	}
	for _, d := range list {
		if d == Empty {
			if err := to(ctx, d, bytes.NewReader(nil)); err != nil {
				return err
			}
			break
		}
	}
	small, large := group(distinct(list), min(streamed, l.Batch), min(fetched, l.Batch))
	return c.each(ctx, len(small)+len(large), func(ctx context.Context, i int) error {
		if i < len(large) {
			return c.downloadStream(ctx, large[i], to, l.Zstd && large[i].Size >= packed)
		}
		return c.downloadBatch(ctx, small[i-len(large)], to, l.Zstd)
	})
}

// Fetch returns one blob that is expected to be small.
func (c *Client) Fetch(ctx context.Context, d Digest) ([]byte, error) {
	var b []byte
	err := c.Download(ctx, []Digest{d}, func(_ context.Context, _ Digest, r io.Reader) (err error) {
		b, err = io.ReadAll(r)
		return err
	})
	return b, err
}

func statusError(s *spb.Status) error {
	if s.GetCode() == 0 {
		return nil
	}
	return status.FromProto(s).Err()
}

func (c *Client) downloadBatch(ctx context.Context, list []Digest, to Sink, zstd bool) error {
	wanted := make(map[string]Digest, len(list))
	var size int64
	for _, d := range list {
		wanted[string(d.Hash)] = d
		size += d.Size
	}
	got := make(map[Digest][]byte, len(list))
	err := c.call(ctx, size, func(ctx context.Context) error {
		request := &rexec.BatchReadBlobsRequest{InstanceName: c.instance, DigestFunction: rexec.DigestFunction_SHA256}
		for _, d := range wanted {
			request.Digests = append(request.Digests, d.Proto())
		}
		if zstd {
			request.AcceptableCompressors = []rexec.Compressor_Value{rexec.Compressor_IDENTITY, rexec.Compressor_ZSTD}
		}
		answer, err := c.cas.BatchReadBlobs(ctx, request)
		if err != nil {
			return err
		}
		return c.sort(answer, wanted, got)
	})
	if err != nil {
		return err
	}
	for _, d := range list {
		if err := to(ctx, d, bytes.NewReader(got[d])); err != nil {
			return fmt.Errorf("download %s: %w", d, err)
		}
	}
	return nil
}

// sort moves what a batch brought, checked, from wanted to got.
func (c *Client) sort(answer *rexec.BatchReadBlobsResponse, wanted map[string]Digest, got map[Digest][]byte) error {
	var first error
	for _, r := range answer.GetResponses() {
		d, ok := wanted[r.GetDigest().GetHash()]
		if !ok {
			continue
		}
		err := statusError(r.GetStatus())
		var data []byte
		if err == nil {
			data, err = c.unpack(d, r)
		}
		if err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		got[d] = data
		delete(wanted, string(d.Hash))
	}
	if first == nil && len(wanted) > 0 {
		for _, d := range wanted {
			return errs.New(errs.NotFound, "the server did not send %s", d)
		}
	}
	return first
}

// unpack returns the bytes of an answer if they are the blob's.
func (c *Client) unpack(d Digest, r *rexec.BatchReadBlobsResponse_Response) ([]byte, error) {
	data := r.GetData()
	switch r.GetCompressor() {
	case rexec.Compressor_IDENTITY:
	case rexec.Compressor_ZSTD:
		var err error
		if data, err = Unpack(data, d.Size); err != nil {
			return nil, err
		}
	default:
		return nil, errs.New(errs.Unsupported, "the server sent %s as %v", d, r.GetCompressor())
	}
	if got := Of(data); got != d {
		return nil, errs.New(errs.DataLoss, "the blob %s came as %s", d, got)
	}
	return data, nil
}

// Unpack decompresses what should have size bytes, and not more.
func Unpack(data []byte, size int64) ([]byte, error) {
	d, err := NewUnpacker()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if err := d.Reset(bytes.NewReader(data)); err != nil {
		return nil, errs.New(errs.DataLoss, "not zstd: %w", err)
	}
	var b bytes.Buffer
	if _, err := io.Copy(&b, io.LimitReader(d, size+1)); err != nil {
		return nil, errs.New(errs.DataLoss, "not zstd: %w", err)
	}
	return b.Bytes(), nil
}

func (c *Client) downloadStream(ctx context.Context, d Digest, to Sink, zstd bool) error {
	r := &streamReader{c: c, ctx: ctx, zstd: zstd, blob: d, sum: digest.NewWriter()}
	defer r.close()
	if err := to(ctx, d, r); err != nil {
		return fmt.Errorf("download %s from cache %s: %w", d, c.address, err)
	}
	return nil
}

// streamReader reads a blob from a stream, and goes on with another where one
// broke off.
type streamReader struct {
	c    *Client
	ctx  context.Context // of the download, which is one call
	zstd bool
	blob Digest
	sum  *digest.Writer

	body   io.Reader // of the stream that is open; nil when none is
	cancel context.CancelFunc
	tried  int // streams without a byte in a row
	err    error
}

func (r *streamReader) Read(p []byte) (int, error) {
	for r.err == nil {
		if len(p) == 0 {
			return 0, nil
		}
		if r.body == nil {
			r.open()
			continue
		}
		n, err := r.body.Read(p)
		if n > 0 {
			r.tried = 0
			_, _ = r.sum.Write(p[:n]) // never fails
			if r.sum.Size() > r.blob.Size {
				r.err = errs.New(errs.DataLoss, "the blob %s came with more bytes", r.blob)
				break
			}
		}
		if err != nil {
			r.close()
			r.err = r.ended(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, r.err
}

// ended says how the end of a stream ends the blob; nil is not yet.
func (r *streamReader) ended(err error) error {
	if errors.Is(err, io.EOF) {
		if err := r.blob.Check(r.sum); err != nil {
			return err
		}
		return io.EOF
	}
	wait, again := retryable(err)
	if r.tried++; !again || wait > longPause || r.tried >= tries || r.ctx.Err() != nil {
		if _, isStatus := status.FromError(err); !isStatus && r.zstd && errs.CodeOf(err) == errs.Internal {
			return errs.New(errs.DataLoss, "the blob %s did not come as zstd: %w", r.blob, err)
		}
		return fromRPC(r.ctx, err)
	}
	return waitFor(r.ctx, max(wait, firstPause<<r.tried))
}

// open asks for what is not read yet.
func (r *streamReader) open() {
	ctx, alive, cancel := r.c.watch(metadata.NewOutgoingContext(r.ctx, r.c.headers))
	name := Name{Instance: r.c.instance, Zstd: r.zstd, Blob: r.blob}
	stream, err := r.c.stream.Read(ctx, &bytestream.ReadRequest{ResourceName: name.String(), ReadOffset: r.sum.Size()})
	if err != nil {
		cancel()
		r.err = r.ended(err)
		return
	}
	left := r.blob.Size + spare
	in := &messages{next: func() ([]byte, error) {
		if left < 0 { // packed, it may go on for ever and bring nothing
			return nil, errs.New(errs.DataLoss, "the blob %s came with more bytes", r.blob)
		}
		m, err := stream.Recv()
		if err != nil && !errors.Is(err, io.EOF) && r.ctx.Err() == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			r.c.answered.Store(true)
			alive(len(m.GetData()))
			left -= int64(len(m.GetData()))
		}
		return m.GetData(), err
	}}
	r.body, r.cancel = in, cancel
	if r.zstd {
		d, err := r.c.unpacker()
		if err == nil {
			err = d.Reset(in)
		}
		if err != nil {
			cancel()
			r.body, r.err = nil, r.ended(in.blame(err))
			return
		}
		r.body = &unpacking{d: d, in: in}
		r.cancel = func() {
			cancel()
			_ = d.Reset(nil) // lets go of the stream
			r.c.unpackers.Put(d)
		}
	}
}

func (r *streamReader) close() {
	if r.body != nil {
		r.cancel()
		r.body = nil
	}
}

// messages reads the bytes of a stream's messages.
type messages struct {
	next func() ([]byte, error)
	buf  []byte
	err  error
}

func (m *messages) Read(p []byte) (int, error) {
	for len(m.buf) == 0 && m.err == nil {
		m.buf, m.err = m.next()
	}
	if len(m.buf) == 0 {
		return 0, m.err
	}
	n := copy(p, m.buf)
	m.buf = m.buf[n:]
	return n, nil
}

// blame returns the stream's own error, where it has one, instead of what a
// decompressor makes of it.
func (m *messages) blame(err error) error {
	if m.err != nil && !errors.Is(m.err, io.EOF) {
		return m.err
	}
	return err
}

type unpacking struct {
	d  io.Reader
	in *messages
}

func (u *unpacking) Read(p []byte) (int, error) {
	n, err := u.d.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = u.in.blame(err)
	}
	return n, err
}
