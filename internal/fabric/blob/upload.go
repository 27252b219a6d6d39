package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	rexec "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/life"
)

// Source writes the blob's bytes to w. It may be called again for a blob when
// an upload is tried again, and for several blobs at once.
type Source func(ctx context.Context, d Digest, w io.Writer) error

const (
	// streamed is from which size on a blob goes alone, as a stream: collecting
	// it would cost more memory than the call saves time.
	streamed = 1 << 20
	// piece is how much of a stream goes in one message.
	piece = 256 << 10
	// packed is from which size on compressing pays.
	packed = 512
)

// Upload sends those of the blobs that the server has not, some at once. A blob
// whose source gives other bytes is DataLoss, and the server is not told of it.
func (c *Client) Upload(ctx context.Context, list []Digest, from Source) error {
	l, err := c.Limits(ctx)
	if err != nil {
		return err
	}
	missing, err := c.Missing(ctx, list)
	if err != nil {
		return err
	}
	for _, d := range missing {
		if l.MaxBlob > 0 && d.Size > l.MaxBlob {
			return errs.New(errs.ResourceExhausted, "cache %s: it takes blobs up to %d bytes, and %s is larger", c.address, l.MaxBlob, d)
		}
	}
	small, large := group(missing, min(streamed, l.Batch), l.Batch)
	return c.each(ctx, len(small)+len(large), func(ctx context.Context, i int) error {
		if i < len(large) { // first, since they take longest
			return c.uploadStream(ctx, large[i], from, l.Zstd && large[i].Size >= packed)
		}
		return c.uploadBatch(ctx, small[i-len(large)], from, l.ZstdBatch)
	})
}

// each does n transfers, some at once, and stops at the first failure.
func (c *Client) each(ctx context.Context, n int, f func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results := life.Each(ctx, n, c.parallel, func(ctx context.Context, i int) error {
		err := f(ctx, i)
		if err != nil {
			cancel(err)
		}
		return err
	})
	if err := context.Cause(ctx); err != nil {
		return err // the first one; the others were stopped by it
	}
	return errors.Join(results...)
}

// group puts small blobs together into batches and leaves the others alone.
func group(list []Digest, from, batch int64) (small [][]Digest, large []Digest) {
	var now []Digest
	var size int64
	for _, d := range list {
		if d.Size+overhead > from {
			large = append(large, d)
			continue
		}
		if len(now) > 0 && size+d.Size+overhead > batch {
			small = append(small, now)
			now, size = nil, 0
		}
		now = append(now, d)
		size += d.Size + overhead
	}
	if len(now) > 0 {
		small = append(small, now)
	}
	return small, large
}

// overhead is what a blob takes in a message besides its bytes.
const overhead = 128

// read collects a small blob and checks it.
func read(ctx context.Context, d Digest, from Source) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(d.Size))
	sum := digest.NewWriter()
	if err := from(ctx, d, io.MultiWriter(&limited{w: &b, left: d.Size}, sum)); err != nil {
		return nil, fmt.Errorf("upload %s: %w", d, err)
	}
	return b.Bytes(), d.Check(sum)
}

// limited takes no more than a blob should have.
type limited struct {
	w    io.Writer
	left int64
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, errs.New(errs.DataLoss, "the blob has more bytes than its digest says")
	}
	return l.w.Write(p)
}

func (c *Client) uploadBatch(ctx context.Context, list []Digest, from Source, zstd bool) error {
	var requests []*rexec.BatchUpdateBlobsRequest_Request
	var size int64
	for _, d := range list {
		size += d.Size
		b, err := read(ctx, d, from)
		if err != nil {
			return err
		}
		r := &rexec.BatchUpdateBlobsRequest_Request{Digest: d.Proto(), Data: b}
		if zstd && len(b) >= packed {
			e, err := c.packer()
			if err != nil {
				return err
			}
			if small := e.EncodeAll(b, nil); len(small) < len(b) {
				r.Data, r.Compressor = small, rexec.Compressor_ZSTD
			}
			c.packers.Put(e)
		}
		requests = append(requests, r)
	}
	return c.call(ctx, size, func(ctx context.Context) error {
		answer, err := c.cas.BatchUpdateBlobs(ctx, &rexec.BatchUpdateBlobsRequest{
			InstanceName: c.instance, Requests: requests, DigestFunction: rexec.DigestFunction_SHA256,
		})
		if err != nil {
			return err
		}
		requests, err = refused(requests, answer)
		return err
	})
}

// refused returns the requests that were not taken, which alone are sent again,
// and the error of one of them.
func refused(requests []*rexec.BatchUpdateBlobsRequest_Request, answer *rexec.BatchUpdateBlobsResponse) ([]*rexec.BatchUpdateBlobsRequest_Request, error) {
	taken := map[string]bool{}
	var first error
	for _, r := range answer.GetResponses() {
		switch err := statusError(r.GetStatus()); {
		case err == nil:
			taken[r.GetDigest().GetHash()] = true
		case first == nil:
			first = err
		}
	}
	var left []*rexec.BatchUpdateBlobsRequest_Request
	for _, r := range requests {
		if !taken[r.GetDigest().GetHash()] {
			left = append(left, r)
		}
	}
	if len(left) > 0 && first == nil {
		first = errs.New(errs.Internal, "the server did not say whether it took %s", left[0].GetDigest().GetHash())
	}
	return left, first
}

// uploadStream sends one blob as a stream.
func (c *Client) uploadStream(ctx context.Context, d Digest, from Source, zstd bool) error {
	name := Name{Instance: c.instance, Upload: uuid(), Zstd: zstd, Blob: d}
	return c.call(ctx, d.Size, func(ctx context.Context) error {
		watched, alive, stop := c.watch(ctx)
		defer stop() // frees the stream when the source fails
		n, sent, err := c.writeStream(watched, name, from, alive)
		switch {
		case err != nil && ctx.Err() == nil && watched.Err() != nil:
			return context.Cause(watched)
		case err != nil:
			return err
		case n == d.Size || zstd && (n == -1 || n == sent):
			return nil
		}
		return errs.New(errs.Internal, "the server took %d bytes of %s", n, d)
	})
}

// writeStream sends a blob over a stream of its own; taken is what the server says
// that it has. alive is called as it goes.
func (c *Client) writeStream(ctx context.Context, name Name, from Source, alive func(bytes int)) (taken, sent int64, err error) {
	stream, err := c.stream.Write(ctx)
	if err != nil {
		return 0, 0, err
	}
	w := &streamWriter{stream: stream, name: name.String(), alive: alive}
	err = c.pour(ctx, w, name.Blob, from, name.Zstd)
	if err == nil {
		err = w.finish()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, w.sent, err
	}
	// After io.EOF the server has answered already: it has the blob, or an error.
	answer, err := stream.CloseAndRecv()
	return answer.GetCommittedSize(), w.sent, err
}

// pour writes the blob to w and checks it before its end is told.
func (c *Client) pour(ctx context.Context, w *streamWriter, d Digest, from Source, zstd bool) error {
	sum := digest.NewWriter()
	var to io.Writer = w
	if zstd {
		e, err := c.packer()
		if err != nil {
			return err
		}
		e.Reset(w)
		defer func() {
			e.Reset(nil)
			c.packers.Put(e)
		}()
		to = e
	}
	if err := from(ctx, d, io.MultiWriter(&limited{w: to, left: d.Size}, sum)); err != nil {
		return err
	}
	if err := d.Check(sum); err != nil {
		return err
	}
	if closer, ok := to.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// streamWriter sends what is written to it in pieces.
type streamWriter struct {
	stream bytestream.ByteStream_WriteClient
	name   string // goes with the first message
	alive  func(bytes int)
	buf    []byte
	sent   int64
}

func (w *streamWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		k := min(piece-len(w.buf), len(p))
		w.buf = append(w.buf, p[:k]...)
		p = p[k:]
		// The last piece is kept: it goes with the word that it is the last.
		if len(w.buf) == piece && len(p) > 0 {
			if err := w.send(false); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (w *streamWriter) finish() error { return w.send(true) }

func (w *streamWriter) send(last bool) error {
	err := w.stream.Send(&bytestream.WriteRequest{ResourceName: w.name, WriteOffset: w.sent, FinishWrite: last, Data: w.buf})
	if w.alive(len(w.buf)); last {
		w.alive(enough) // the answer may take its time from here
	}
	w.sent += int64(len(w.buf))
	w.name, w.buf = "", w.buf[:0]
	return err
}
