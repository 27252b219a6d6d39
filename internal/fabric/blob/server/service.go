package server

import (
	"bytes"
	"context"
	"io"

	rexec "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/bazelbuild/remote-apis/build/bazel/semver"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/genproto/googleapis/bytestream"
	spb "google.golang.org/genproto/googleapis/rpc/status"

	"brood/internal/base/errs"
	"brood/internal/fabric/blob"
	"brood/internal/fabric/blob/disk"
)

// service is every service of the cache.
type service struct {
	rexec.UnimplementedCapabilitiesServer
	rexec.UnimplementedActionCacheServer
	rexec.UnimplementedContentAddressableStorageServer
	bytestream.UnimplementedByteStreamServer

	store    *disk.Store
	readOnly bool
}

// packed is from which size on a blob in a batch is worth compressing.
const packed = 1024

// wire is err as gRPC wants it.
func wire(err error) error { return blob.Status(err).Err() }

// request checks what every request has.
func request(instance string, f rexec.DigestFunction_Value) error {
	if f != rexec.DigestFunction_UNKNOWN && f != rexec.DigestFunction_SHA256 {
		return errs.New(errs.InvalidArgument, "digest function %v: this cache knows SHA256 only", f)
	}
	return blob.CheckInstance(instance)
}

// GetCapabilities says what this cache does.
func (s *service) GetCapabilities(_ context.Context, r *rexec.GetCapabilitiesRequest) (*rexec.ServerCapabilities, error) {
	if err := blob.CheckInstance(r.GetInstanceName()); err != nil {
		return nil, wire(err)
	}
	return &rexec.ServerCapabilities{
		CacheCapabilities: &rexec.CacheCapabilities{
			DigestFunctions:                 []rexec.DigestFunction_Value{rexec.DigestFunction_SHA256},
			ActionCacheUpdateCapabilities:   &rexec.ActionCacheUpdateCapabilities{UpdateEnabled: !s.readOnly},
			MaxBatchTotalSizeBytes:          batchTotal,
			MaxCasBlobSizeBytes:             s.store.MaxBlob(),
			SymlinkAbsolutePathStrategy:     rexec.SymlinkAbsolutePathStrategy_ALLOWED,
			SupportedCompressors:            []rexec.Compressor_Value{rexec.Compressor_ZSTD},
			SupportedBatchUpdateCompressors: []rexec.Compressor_Value{rexec.Compressor_ZSTD},
		},
		LowApiVersion:  &semver.SemVer{Major: 2},
		HighApiVersion: &semver.SemVer{Major: 2, Minor: 3},
	}, nil
}

// writable refuses where nothing may be stored.
func (s *service) writable() error {
	if s.readOnly {
		return errs.New(errs.PermissionDenied, "this cache may be read, not written")
	}
	return nil
}

// FindMissingBlobs answers which blobs are not here.
func (s *service) FindMissingBlobs(_ context.Context, r *rexec.FindMissingBlobsRequest) (*rexec.FindMissingBlobsResponse, error) {
	if err := request(r.GetInstanceName(), r.GetDigestFunction()); err != nil {
		return nil, wire(err)
	}
	answer := &rexec.FindMissingBlobsResponse{}
	for _, p := range r.GetBlobDigests() {
		d, err := blob.FromProto(p)
		if err != nil {
			return nil, wire(err)
		}
		if !s.store.Has(d) {
			answer.MissingBlobDigests = append(answer.MissingBlobDigests, p)
		}
	}
	return answer, nil
}

// BatchUpdateBlobs stores blobs, each by itself.
func (s *service) BatchUpdateBlobs(ctx context.Context, r *rexec.BatchUpdateBlobsRequest) (*rexec.BatchUpdateBlobsResponse, error) {
	if err := request(r.GetInstanceName(), r.GetDigestFunction()); err != nil {
		return nil, wire(err)
	}
	if err := s.writable(); err != nil {
		return nil, wire(err)
	}
	var total total
	for _, q := range r.GetRequests() {
		if err := total.add(q.GetDigest().GetSizeBytes()); err != nil {
			return nil, wire(err)
		}
	}
	answer := &rexec.BatchUpdateBlobsResponse{}
	for _, q := range r.GetRequests() {
		err := ctx.Err()
		if err == nil {
			err = s.update(q)
		}
		answer.Responses = append(answer.Responses, &rexec.BatchUpdateBlobsResponse_Response{Digest: q.GetDigest(), Status: told(err)})
	}
	return answer, nil
}

func told(err error) *spb.Status { return blob.Status(err).Proto() }

// total counts the bytes of a batch.
type total int64

func (t *total) add(n int64) error {
	if n < 0 || n > batchTotal || *t > batchTotal-total(n) {
		return errs.New(errs.InvalidArgument, "the batch has more than the %d bytes that this cache takes at once", batchTotal)
	}
	*t += total(n)
	return nil
}

func (s *service) update(q *rexec.BatchUpdateBlobsRequest_Request) error {
	d, err := blob.FromProto(q.GetDigest())
	if err != nil {
		return err
	}
	data := q.GetData()
	switch q.GetCompressor() {
	case rexec.Compressor_IDENTITY:
	case rexec.Compressor_ZSTD:
		if data, err = blob.Unpack(data, d.Size); err != nil {
			return errs.New(errs.InvalidArgument, "%w", err)
		}
	default:
		return errs.New(errs.InvalidArgument, "compressor %v: this cache knows zstd only", q.GetCompressor())
	}
	if got := blob.Of(data); got != d {
		return errs.New(errs.InvalidArgument, "the data of %s is that of %s", d, got)
	}
	return s.store.Put(d, bytes.NewReader(data))
}

// BatchReadBlobs returns blobs, each by itself.
func (s *service) BatchReadBlobs(ctx context.Context, r *rexec.BatchReadBlobsRequest) (*rexec.BatchReadBlobsResponse, error) {
	if err := request(r.GetInstanceName(), r.GetDigestFunction()); err != nil {
		return nil, wire(err)
	}
	var total total
	for _, p := range r.GetDigests() {
		if err := total.add(p.GetSizeBytes()); err != nil {
			return nil, wire(err)
		}
	}
	var e *zstd.Encoder
	for _, c := range r.GetAcceptableCompressors() {
		if c == rexec.Compressor_ZSTD && e == nil {
			var err error
			if e, err = blob.NewPacker(); err != nil {
				return nil, wire(err)
			}
		}
	}
	answer := &rexec.BatchReadBlobsResponse{}
	for _, p := range r.GetDigests() {
		if err := ctx.Err(); err != nil {
			return nil, wire(err)
		}
		data, err := s.read(p)
		one := &rexec.BatchReadBlobsResponse_Response{Digest: p, Data: data, Status: told(err)}
		if e != nil && len(data) >= packed {
			if small := e.EncodeAll(data, nil); len(small) < len(data) {
				one.Data, one.Compressor = small, rexec.Compressor_ZSTD
			}
		}
		answer.Responses = append(answer.Responses, one)
	}
	return answer, nil
}

// read returns a blob that fits in a message.
func (s *service) read(p *rexec.Digest) ([]byte, error) {
	d, err := blob.FromProto(p)
	if err != nil {
		return nil, err
	}
	f, err := s.store.Open(d, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, 0, d.Size+1) // ReadAll wants room to see the end
	w := bytes.NewBuffer(b)
	if _, err := io.Copy(w, f); err != nil {
		// What is here and spoiled is as good as not here.
		return nil, errs.New(errs.NotFound, "blob %s was damaged and is removed: %w", d, err)
	}
	return w.Bytes(), nil
}
